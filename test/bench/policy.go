// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	policies "github.com/corral-dev/corral/controllers/policy"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/policy"
)

// The fleet that policies are asked about.
const (
	judgedNamespaces = 50
	judgedPools      = 20 // in each namespace
	// batch is how many decisions are measured at once: the process's clock of CPU time is too coarse for one.
	batch = 200
)

// fleet are pools and the policies that bind them, with the engine as the controller has it.
type fleet struct {
	engine *policies.Engine
	source policy.Source
	pools  []*v1alpha1.RunnerPool
	pods   map[*v1alpha1.RunnerPool][]byte
	now    time.Time
}

// runPolicy measures what decisions cost with the whole library switched on, in this process.
func runPolicy(ctx context.Context, _ *options, _ time.Duration) (figures, error) {
	f, err := newFleet(ctx)
	if err != nil {
		return nil, err
	}
	result := figures{"judged_pools": float64(len(f.pools))}
	result["scaling_us"] = f.median(ctx, func(p *v1alpha1.RunnerPool) { f.limits(ctx, p, 5) })
	result["template_us"] = f.median(ctx, func(p *v1alpha1.RunnerPool) { f.verdict(ctx, p) })
	f.source = wholeLibrary(399)
	began := cpuNow()
	if err := f.load(); err != nil {
		return nil, err
	}
	if err := f.judge(ctx); err != nil {
		return nil, err
	}
	result["rejudge_cpu_s"] = (cpuNow() - began).Seconds()
	f.engine.Pass(ctx)
	f.limits(ctx, f.pools[0], 6)
	result["sharers"] = float64(f.engine.Pass(ctx))
	return result, nil
}

// newFleet makes pools that have been judged once, so that everything there is to remember is remembered.
func newFleet(ctx context.Context) (*fleet, error) {
	f := &fleet{now: time.Unix(1_800_000_000, 0), source: wholeLibrary(400)}
	f.engine = policies.NewEngine(func() time.Time { return f.now })
	for n := range judgedNamespaces {
		for p := range judgedPools {
			f.pools = append(f.pools, judgedPool(fmt.Sprintf("team-%d", n), fmt.Sprintf("pool-%d", p)))
		}
	}
	f.pods = map[*v1alpha1.RunnerPool][]byte{}
	for _, p := range f.pools {
		pod, err := podspec.Specimen(p)
		if err != nil {
			return nil, err
		}
		if f.pods[p], err = json.Marshal(pod); err != nil {
			return nil, fmt.Errorf("encoding a pod: %w", err)
		}
	}
	if err := f.load(); err != nil {
		return nil, err
	}
	return f, f.judge(ctx)
}

func (f *fleet) load() error {
	loaded, diagnostics := policy.Load(f.source)
	if len(diagnostics) > 0 {
		return fmt.Errorf("loading the library: %s", diagnostics[0].Message)
	}
	f.engine.Put(loaded, f.source)
	return nil
}

// judge asks for the limits and the template of every pool, and expects answers.
func (f *fleet) judge(ctx context.Context) error {
	for _, p := range f.pools {
		if answer := f.limits(ctx, p, 5); len(answer.Failures) > 0 || len(answer.Bounds) == 0 {
			return fmt.Errorf("limits of %s/%s: %+v", p.Namespace, p.Name, answer)
		}
		answer, err := f.engine.Permit(ctx, p, "revision", p.Spec.Template.Raw)
		if err != nil || len(answer.Failures)+len(answer.Denials) > 0 {
			return errors.Join(err, fmt.Errorf("template of %s/%s: %+v", p.Namespace, p.Name, answer))
		}
	}
	return nil
}

func (f *fleet) limits(ctx context.Context, p *v1alpha1.RunnerPool, granted int32) policy.Scaling {
	facts := policy.PoolOf(p)
	in := policy.ScalingInput{Pool: facts, Jobs: 4, Runners: policy.Runners{Total: 5, Busy: 4, Idle: 1}, Now: f.now.UnixNano(), Zone: "UTC"}
	asked := f.engine.Scaling(ctx, f.engine.For(facts), in)
	f.engine.Commit(ctx, asked, policies.Grant{Granted: granted, Wanted: granted + 2})
	return asked.Answer
}

// verdict asks about a pod.
func (f *fleet) verdict(ctx context.Context, p *v1alpha1.RunnerPool) {
	facts := policy.PoolOf(p)
	f.engine.For(facts).Template(ctx, policy.TemplateInput{Pool: facts, Pod: f.pods[p]})
}

// median is the CPU time of one decision, in microseconds.
func (f *fleet) median(ctx context.Context, decide func(*v1alpha1.RunnerPool)) float64 {
	var times []float64
	for i := 0; i+batch <= len(f.pools) && ctx.Err() == nil; i += batch {
		for range 5 {
			began := cpuNow()
			for _, p := range f.pools[i : i+batch] {
				decide(p)
			}
			times = append(times, float64((cpuNow()-began).Microseconds())/batch)
		}
	}
	slices.Sort(times)
	return times[len(times)/2]
}

// cpuNow is the CPU time that this process has used, its garbage collection too.
func cpuNow() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // it takes no arguments that could be wrong
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// judgedPool has a pod of about 4 kB.
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
		panic(err) // it holds nothing that JSON can't
	}
	p.Spec.Template.Raw = raw
	return p
}

// wholeLibrary switches every family on, with a ceiling that the pools of a namespace share.
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
				Zone:    "Europe/Berlin",
				Open:    []v1alpha1.WeeklyWindow{{Days: weekdays, From: "06:00", To: "22:00"}},
				Closed:  &v1alpha1.HourLimits{Idle: new(int32(0))},
				Freezes: []v1alpha1.Freeze{{Name: "year's end", From: metav1.Unix(1_703_000_000, 0), To: metav1.Unix(1_704_000_000, 0)}},
			},
			Ceilings: []v1alpha1.Ceiling{{Name: "team", By: v1alpha1.CeilingNamespace, Max: ceiling, Share: v1alpha1.ShareFair}},
		},
	}
}
