// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/sim/world"
)

// teamPolicy is the policy in the repository. Its deny is on line 7, and its limit on line 16.
const teamPolicy = `package corral.template

import rego.v1

# METADATA
# title: No privileged containers
deny contains finding if {
	some i, c in input.pod.spec.containers
	c.securityContext.privileged == true
	finding := {
		"msg": sprintf("container %s is privileged", [c.name]),
		"path": sprintf("spec.containers[%d].securityContext.privileged", [i]),
		"remediation": "set privileged to false",
	}
}
`

const teamLimits = `package corral.scaling

import rego.v1

limit contains {"field": "max", "atMost": 60, "reason": "a team has 60 runners"} if input.pool.scale.max > 60
`

// poolWith returns CUE that declares the pool linux.
func poolWith(maximum int, privileged bool) string {
	context := ""
	if privileged {
		context = ", securityContext: privileged: true"
	}
	return fmt.Sprintf(`package pools

import "corral.dev/schema@v0"

pools: schema.#Pools & {linux: spec: {
	connectionRef: name: "acme"
	scale: max: %d
	template: spec: containers: [{name: "runner", image: "runner:1"%s}]
}}
`, maximum, context)
}

// A commit adds a pool and a policy that denies it. The next commit fixes the pool. A policy from outside of the
// repository cannot be weakened by any change in it.
func TestPoliciesOfARepositoryDecideOnItsPools(t *testing.T) {
	namespace := "policies-git"
	w := newStory(t, namespace)
	w.controller(t)
	ends(t, namespace)
	must(t, w.Connect(t.Context(), namespace, "acme", namespace+"-org"))
	g := &gitops{w: w, Repository: harness.NewRepository(t), namespace: namespace, key: client.ObjectKey{Namespace: namespace, Name: "pools"}}
	g.Write("pools.cue", poolWith(500, true))
	g.Write("policies/template.rego", teamPolicy)
	g.Write("policies/limits.rego", teamLimits)
	commit := g.Push("A privileged pool")
	must(t, w.Client.Create(t.Context(), &v1alpha1.PoolSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pools"},
		Spec:       v1alpha1.PoolSourceSpec{Git: &v1alpha1.GitSource{URL: g.URL()}, Interval: metav1.Duration{Duration: time.Hour}},
	}))
	g.applied(commit)
	waitPool(t, key(namespace, "linux"), func(p *v1alpha1.RunnerPool) error {
		ready := conditions.Get(p, v1alpha1.ReadyCondition)
		want := "spec.template.spec.containers[0].securityContext.privileged: container runner is privileged " +
			"[RunnerPolicy/" + namespace + "/pools corral.template.deny (policies/template.rego:7)]; set privileged to false"
		if ready == nil || ready.Reason != v1alpha1.PolicyDeniedReason || ready.Message != want || !conditions.IsStalled(p) {
			return fmt.Errorf("Ready is %+v, want %s: %s", ready, v1alpha1.PolicyDeniedReason, want)
		}
		return nil
	})
	if s := g.remote("linux"); s != nil {
		t.Errorf("a denied pool announces on GitHub: %+v", s)
	}

	g.Write("pools.cue", poolWith(500, false))
	g.applied(g.pushAndRequest("An ordinary pool"))
	waitLimits(t, key(namespace, "linux"), 60)
	g.waitAnnounced("linux", 60)
	explained := w.Corral(t, "explain", "pool/linux", "-n", namespace)
	for _, text := range []string{"60", "500", "RunnerPolicy/" + namespace + "/pools", "policies/limits.rego:5", "a team has 60 runners"} {
		if !strings.Contains(explained, text) {
			t.Errorf("corral explain doesn't say %q:\n%s", text, explained)
		}
	}
	id := g.job("linux", 100*time.Millisecond)
	harness.AllDone(t, w.GitHub, []string{id})

	guard := &v1alpha1.ClusterRunnerPolicy{ObjectMeta: metav1.ObjectMeta{Name: "guard-" + namespace}}
	guard.Spec.Namespaces = []string{namespace}
	guard.Spec.Modules = map[string]string{"guard.rego": strings.ReplaceAll(teamLimits, "60", "7")}
	must(t, w.Client.Create(t.Context(), guard))
	t.Cleanup(func() { must(t, w.Client.Delete(context.Background(), guard)) })
	waitLimits(t, key(namespace, "linux"), 7)
	g.Write("policies/limits.rego", strings.ReplaceAll(strings.ReplaceAll(teamLimits, "atMost", "atLeast"), "60", "400"))
	g.applied(g.pushAndRequest("A policy that would widen"))
	waitPool(t, key(namespace, "linux"), func(p *v1alpha1.RunnerPool) error {
		d := p.Status.Decision
		if d == nil || d.Limits == nil || d.Limits.GetMax() != 7 || len(d.Limits.Conflicts) == 0 {
			return fmt.Errorf("decision %+v", d)
		}
		return nil
	})
	g.Remove("policies")
	g.applied(g.pushAndRequest("No policies at all"))
	waitLimits(t, key(namespace, "linux"), 7)
}

// ends deletes the objects of a story when the test ends, and waits until nothing is left, because other checks
// cover the whole simulated GitHub.
func ends(t *testing.T, namespace string) {
	t.Helper()
	t.Cleanup(func() {
		ctx := context.Background()
		if t.Failed() {
			return // the controller may have exited
		}
		must(t, retire(ctx, namespace))
		for _, kind := range []client.Object{&v1alpha1.RunnerPool{}, &v1alpha1.RunnerPolicy{}} {
			must(t, shared.Client.DeleteAllOf(ctx, kind, client.InNamespace(namespace)))
		}
		must(t, world.Until(ctx, harness.Patience, func(ctx context.Context) error { return shared.Left(ctx, namespace) }))
	})
}

// pushAndRequest pushes a commit, and triggers a reconciliation of the source.
func (g *gitops) pushAndRequest(message string) string {
	g.T.Helper()
	commit := g.Push(message)
	g.request()
	return commit
}

// waitAnnounced waits until GitHub has received a capacity.
func (g *gitops) waitAnnounced(set string, capacity int) {
	g.T.Helper()
	eventually(g.T, func(context.Context) error {
		if s := g.remote(set); s == nil || s.Capacity != capacity {
			return fmt.Errorf("GitHub has %+v", s)
		}
		return nil
	})
}

func waitPool(t *testing.T, key client.ObjectKey, check func(*v1alpha1.RunnerPool) error) {
	t.Helper()
	eventually(t, func(ctx context.Context) error {
		p := &v1alpha1.RunnerPool{}
		if err := shared.Client.Get(ctx, key, p); err != nil {
			return err
		}
		return check(p)
	})
}

func waitLimits(t *testing.T, key client.ObjectKey, maximum int32) {
	t.Helper()
	waitPool(t, key, func(p *v1alpha1.RunnerPool) error {
		if d := p.Status.Decision; d == nil || d.Limits == nil || d.Limits.GetMax() != maximum || d.Announced != maximum {
			return fmt.Errorf("decision %+v", d)
		}
		return nil
	})
}

// A change of a policy takes effect on its pools immediately, without waiting for an interval. No pod restarts, no
// busy runner is stopped, and accepted jobs run.
func TestAPolicyChangeMovesLimitsAtOnce(t *testing.T) {
	namespace := "policies-change"
	w := newStory(t, namespace)
	w.controller(t)
	ends(t, namespace)
	must(t, w.Connect(t.Context(), namespace, "acme", namespace+"-org"))
	policy := limitPolicy(namespace, "limits", 20)
	must(t, w.Client.Create(t.Context(), policy))
	const pools = 5
	for i := range pools {
		must(t, w.Client.Create(t.Context(), newPool(namespace, fmt.Sprintf("p%d", i), "acme", func(p *v1alpha1.RunnerPool) {
			p.Spec.Scale.Max = new(int32(100))
		})))
	}
	for i := range pools {
		waitLimits(t, key(namespace, fmt.Sprintf("p%d", i)), 20)
	}
	// Jobs that run, and jobs that were accepted before the limit was lowered.
	running := harness.AddJobs(t, w.GitHub, namespace+"-org", "p0", 6, harness.LongJob)
	waitPool(t, key(namespace, "p0"), func(p *v1alpha1.RunnerPool) error {
		if p.Status.Runners.Busy < 6 {
			return fmt.Errorf("runners %+v", p.Status.Runners)
		}
		return nil
	})
	before := podUIDs(t, namespace)
	changePolicy(t, policy, 2)
	for i := range pools {
		waitPool(t, key(namespace, fmt.Sprintf("p%d", i)), func(p *v1alpha1.RunnerPool) error {
			if d := p.Status.Decision; d.Limits.GetMax() != 2 {
				return fmt.Errorf("decision %+v", d)
			}
			return nil
		})
	}
	for name, uid := range podUIDs(t, namespace) {
		if old, ok := before[name]; ok && old != uid {
			t.Errorf("pod %s was made again", name)
		}
	}
	harness.CutShort(t, w.GitHub, running...)
	changePolicy(t, policy, 30)
	for i := range pools {
		waitLimits(t, key(namespace, fmt.Sprintf("p%d", i)), 30)
	}
}

// limitPolicy limits the max of every pool in a namespace.
func limitPolicy(namespace, name string, maximum int) *v1alpha1.RunnerPolicy {
	p := &v1alpha1.RunnerPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	p.Spec.Modules = map[string]string{"limits.rego": limitModule(maximum)}
	return p
}

func limitModule(maximum int) string {
	return fmt.Sprintf("package corral.scaling\n\nlimit contains {\"field\": \"max\", \"atMost\": %d, \"reason\": \"for now\"}\n", maximum)
}

func changePolicy(t *testing.T, p *v1alpha1.RunnerPolicy, maximum int) {
	t.Helper()
	setModule(t, p, limitModule(maximum))
}

func setModule(t *testing.T, p *v1alpha1.RunnerPolicy, module string) {
	t.Helper()
	base := p.DeepCopy()
	p.Spec.Modules = map[string]string{"limits.rego": module}
	must(t, shared.Client.Patch(t.Context(), p, client.MergeFrom(base)))
}

func podUIDs(t *testing.T, namespace string) map[string]string {
	t.Helper()
	pods := &corev1.PodList{}
	must(t, shared.Client.List(t.Context(), pods, client.InNamespace(namespace)))
	uids := map[string]string{}
	for _, p := range pods.Items {
		uids[p.Name] = string(p.UID)
	}
	return uids
}
