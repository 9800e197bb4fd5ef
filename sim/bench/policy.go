// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/policies"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/worker"
	"github.com/corral-dev/corral/sim/world"
)

// The fleet that policies are evaluated for.
const (
	judgedNamespaces = 50
	judgedPools      = 20 // in each namespace
	// judgedAtOnce is how many namespaces are evaluated concurrently.
	judgedAtOnce = 4
	// judgingChildren is the number of child processes, as in the controller.
	judgingChildren = 2
)

// fleet contains pools and the policies that apply to them, with the controller's policy engine.
type fleet struct {
	engine *policies.Engine
	// rules evaluates policies that have their own modules; nil if all rules come from the library.
	rules *worker.Evaluator
	pools [][]*v1alpha1.RunnerPool // by namespace
	now   time.Time
}

// runPolicy measures the cost of decisions, without a cluster: first with the whole library enabled, then with custom
// modules as well.
func runPolicy(ctx context.Context, _ *options, _ time.Duration) (figures, error) {
	return judge(ctx, judgedNamespaces)
}

// judge is runPolicy for the pools of the given number of namespaces.
func judge(ctx context.Context, namespaces int) (figures, error) {
	f := figures{"judged_pools": float64(namespaces * judgedPools)}
	if err := f.judging(ctx, "library_", nil, namespaces); err != nil {
		return nil, fmt.Errorf("under library policies: %w", err)
	}
	rules := worker.NewEvaluator(judgingChildren, worker.DefaultEvaluatorLimits())
	defer rules.Close()
	if err := f.judging(ctx, "modules_", rules, namespaces); err != nil {
		return nil, fmt.Errorf("under policies with modules of their own: %w", err)
	}
	var err error
	f["modules_children_mib"], err = childrenMemory()
	return f, err
}

// judging measures evaluating a fleet after a policy change, again when nothing has changed, and when one pool is
// granted more runners.
func (f figures) judging(ctx context.Context, prefix string, rules *worker.Evaluator, namespaces int) error {
	fleet, err := newFleet(ctx, rules, namespaces)
	if err != nil {
		return err
	}
	began, asked := cpuNow(), decisions()
	if err := fleet.load(ctx, 399); err != nil {
		return err
	}
	if err := fleet.judge(ctx); err != nil {
		return err
	}
	f[prefix+"cpu_s"], f[prefix+"asked"] = (cpuNow() - began).Seconds(), decisions()-asked
	asked = decisions()
	if err := fleet.judge(ctx); err != nil {
		return err
	}
	f[prefix+"asked_again"] = decisions() - asked
	fleet.engine.Pass(ctx)
	fleet.limits(ctx, fleet.pools[0][0], 6)
	asked = decisions()
	fleet.engine.Pass(ctx)
	f[prefix+"sharers"] = decisions() - asked
	return nil
}

// newFleet creates pools that have been evaluated once, so that all caches are filled.
func newFleet(ctx context.Context, rules *worker.Evaluator, namespaces int) (*fleet, error) {
	f := &fleet{rules: rules, now: time.Unix(1_800_000_000, 0)}
	f.engine = policies.NewEngine(func() time.Time { return f.now })
	for n := range namespaces {
		var pools []*v1alpha1.RunnerPool
		for p := range judgedPools {
			pools = append(pools, judgedPool(fmt.Sprintf("team-%d", n), fmt.Sprintf("pool-%d", p)))
		}
		f.pools = append(f.pools, pools)
	}
	if err := f.load(ctx, 400); err != nil {
		return nil, err
	}
	return f, f.judge(ctx)
}

// load puts the guard rail into force and, if there are custom rules, a policy of each namespace as well.
func (f *fleet) load(ctx context.Context, ceiling int32) error {
	guard := wholeLibrary(ceiling)
	if f.rules == nil {
		loaded, diagnostics := policy.Load(guard)
		if len(diagnostics) > 0 {
			return fmt.Errorf("loading the library: %s", diagnostics[0].Message)
		}
		f.engine.Put(loaded, guard)
		return nil
	}
	guard.Modules = guardModules
	all := []policy.Source{guard}
	for n := range f.pools {
		all = append(all, policy.Source{
			Kind: policy.KindRunnerPolicy, Namespace: fmt.Sprintf("team-%d", n), Name: "own", Mode: v1alpha1.PolicyEnforce, Modules: teamModules,
		})
	}
	for _, source := range all {
		facts, diagnostics, err := f.rules.Load(ctx, source, nil)
		if err != nil || len(diagnostics) > 0 {
			return errors.Join(err, fmt.Errorf("loading %s: %v", source.Ref(), diagnostics))
		}
		f.engine.Put(policy.Elsewhere(source, facts, f.rules), source)
	}
	return nil
}

// judge evaluates the limits and the template of every pool, and fails on errors.
func (f *fleet) judge(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(judgedAtOnce)
	for _, pools := range f.pools {
		g.Go(func() error {
			for _, p := range pools {
				if answer := f.limits(ctx, p, 5); len(answer.Failures) > 0 || len(answer.Bounds) == 0 {
					return fmt.Errorf("limits of %s/%s: %+v", p.Namespace, p.Name, answer)
				}
				answer, err := f.engine.Permit(ctx, p, "revision", p.Spec.Template.Raw, podspec.Network{})
				if err != nil || len(answer.Failures)+len(answer.Denials) > 0 {
					return errors.Join(err, fmt.Errorf("template of %s/%s: %+v", p.Namespace, p.Name, answer))
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func (f *fleet) limits(ctx context.Context, p *v1alpha1.RunnerPool, granted int32) policy.Scaling {
	facts := policy.PoolOf(p)
	in := policy.ScalingInput{Pool: facts, Jobs: 4, Runners: policy.Runners{Total: 5, Busy: 4, Idle: 1}, Now: f.now.UnixNano(), Zone: "UTC"}
	asked := f.engine.Scaling(ctx, f.engine.For(facts), in)
	f.engine.Commit(asked, policies.Grant{Granted: granted, Wanted: granted + 2})
	return asked.Answer
}

// decisions returns how many times the policies of a pool have been evaluated, from the controller's own metric.
func decisions() (n float64) {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(policies.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		panic(err) // the metrics are registered only once and gathered only here
	}
	for _, family := range families {
		if family.GetName() == "corral_policy_evaluation_seconds" {
			for _, m := range family.GetMetric() {
				n += float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return n
}

// cpuNow returns the CPU time that this process and its children have used, including garbage collection.
func cpuNow() time.Duration {
	var sum time.Duration
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} { // children that have ended
		var u unix.Rusage
		if err := unix.Getrusage(who, &u); err != nil {
			panic(err) // cannot fail with these arguments
		}
		sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	for _, pid := range world.Children(os.Getpid()) {
		var at unix.Timespec
		clock := int32(^pid<<3 | 2) // see clock_getcpuclockid(3)
		if unix.ClockGettime(clock, &at) == nil {
			sum += time.Duration(at.Nano())
		}
	}
	return sum
}

// childrenMemory sums the peak resident memory of each child, in MiB.
func childrenMemory() (mib float64, err error) {
	for _, pid := range world.Children(os.Getpid()) {
		memory, err := world.MemoryOf(pid)
		if err != nil {
			return 0, err
		}
		mib += memory.Peak
	}
	return mib, nil
}

// judgedPool returns a pool with a pod template of about 4 kB.
func judgedPool(namespace, name string) *v1alpha1.RunnerPool {
	p := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"team": namespace, "size": "small"}}}
	p.Spec.ConnectionRef.Name = "acme"
	p.Spec.Scale.Max = new(int32(500))
	var template corev1.PodTemplateSpec
	for c := range 3 {
		container := corev1.Container{Name: fmt.Sprintf("side-%d", c), Image: "ghcr.io/acme/side@sha256:0000000000000000000000000000000000000000000000000000000000000000"}
		if c == 0 {
			container.Name = v1alpha1.RunnerContainerName
		}
		for e := range 14 {
			container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_%d", e), Value: "a value of some length"})
		}
		container.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: resource.MustParse("512Mi")}
		container.Resources.Limits = container.Resources.Requests
		container.SecurityContext = &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(bool), RunAsNonRoot: new(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}
		template.Spec.Containers = append(template.Spec.Containers, container)
	}
	raw, err := json.Marshal(template)
	if err != nil {
		panic(err) // everything in it can be encoded as JSON
	}
	p.Spec.Template.Raw = raw
	return p
}

// wholeLibrary enables every policy family, with a ceiling that the pools of a namespace share.
func wholeLibrary(ceiling int32) policy.Source {
	weekdays := []v1alpha1.Weekday{"Monday", "Tuesday", "Wednesday", "Thursday", "Friday"}
	names := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}
	return policy.Source{
		Kind: policy.KindClusterRunnerPolicy, Name: "guard", Mode: v1alpha1.PolicyEnforce,
		Library: &v1alpha1.PolicyLibrary{
			Images:      &v1alpha1.ImageRules{Allowed: []string{"ghcr.io/acme/", "registry.acme.example/ci/*"}, RequireDigest: true},
			PodSecurity: &v1alpha1.PodSecurityRules{Level: "restricted"},
			Resources: &v1alpha1.ResourceRules{RequireRequests: names, RequireLimits: names, MaxPerPod: map[corev1.ResourceName]v1alpha1.Quantity{
				corev1.ResourceCPU: "8", corev1.ResourceMemory: "32Gi",
			}},
			Hours: &v1alpha1.HourRules{
				TimeZone: "Europe/Berlin",
				Open:     []v1alpha1.WeeklyWindow{{Days: weekdays, From: "06:00", To: "22:00"}},
				Closed:   &v1alpha1.HourLimits{Idle: new(int32(0))},
				Freezes:  []v1alpha1.Freeze{{Name: "year's end", From: metav1.Unix(1_703_000_000, 0), To: metav1.Unix(1_704_000_000, 0)}},
			},
			Ceilings: []v1alpha1.Ceiling{{Name: "team", By: v1alpha1.CeilingNamespace, Max: ceiling, Share: v1alpha1.ShareFair}},
		},
	}
}

// guardModules are what a platform team could add to the library, similar to the cookbook.
var guardModules = map[string]string{
	"quota.rego": `package corral.scaling

limit contains {"field": "max", "atMost": share, "assignedJobs": "Wait", "reason": reason} if {
	quota := 400
	left := max([0, quota - input.usage.connection.granted])
	share := min([left, max([input.usage.granted, ceil(left / 2)])])
	reason := sprintf("connection %s has a quota of %d", [input.pool.connection, quota])
}
`,
	"sockets.rego": `package corral.template

sockets := {"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/crio/crio.sock"}

deny contains {"msg": sprintf("volume %s gives the pod %s of the node", [volume.name, socket])} if {
	some volume in input.pod.spec.volumes
	some socket in sockets
	startswith(sprintf("%s/", [socket]), sprintf("%s/", [trim_right(volume.hostPath.path, "/")]))
}
`,
}

// teamModules are a team's own checks.
var teamModules = map[string]string{
	"own.rego": `package corral.scaling

limit contains {"field": "max", "atMost": 200, "reason": "small pools have 200 runners"} if input.pool.labels.size == "small"

limit contains {"field": "max", "atMost": max([0, 300 - input.usage.namespace.granted]), "reason": "the team has 300 runners"}
`,
	"latest.rego": `package corral.template

deny contains {"msg": sprintf("container %s runs whatever is latest", [container.name])} if {
	some container in input.pod.spec.containers
	endswith(container.image, ":latest")
}

warn contains {"msg": sprintf("container %s has the variable %s", [container.name, variable.name])} if {
	some container in input.pod.spec.containers
	some variable in container.env
	startswith(variable.name, "SECRET_")
}
`,
}
