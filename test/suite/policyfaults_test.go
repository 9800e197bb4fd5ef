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
	"github.com/corral-dev/corral/test/recorder"
)

// policyFaults lists failures of a policy that has decided before, and the expected message of the pool's
// condition.
var policyFaults = []struct{ name, module, says string }{
	{
		name:   "loops",
		module: "package corral.scaling\n\nlimit contains {\"field\": \"max\", \"atMost\": 90} if {\n\tsome i in numbers.range(1, 60000)\n\tsome j in numbers.range(1, 60000)\n\ti * j == -1\n}\n",
		says:   "RunnerPolicy/NAMESPACE/limits\n", // TimedOut, or EvaluationError where other work leaves it no CPU time
	},
	{
		name:   "fills the memory",
		module: hungryModule(0),
		says:   "RunnerPolicy/NAMESPACE/limits\n", // TimedOut, or EvaluationError where other work leaves it no CPU time
	},
	{
		name:   "ends with an error",
		module: "package corral.scaling\n\nlimit contains {\"field\": \"max\", \"atMost\": 90, \"reason\": r} if r := sprintf(\"%d\", [to_number(input.pool.name)])\n",
		says:   "RunnerPolicy/NAMESPACE/limits\nEvaluationError",
	},
	{
		name:   "answers what is none",
		module: "package corral.scaling\n\nlimit contains {\"field\": \"max\", \"atMost\": \"many\"}\n",
		says:   "RunnerPolicy/NAMESPACE/limits\nInvalidAnswer",
	},
	{
		name:   "could be undefined",
		module: "package corral.scaling\n\nlimit := {\"field\": \"max\", \"atMost\": 90} if input.pool.name == \"other\"\n",
		says:   "limits.rego:3",
	},
	{
		name:   "is broken",
		module: "package corral.scaling\n\nlimit contains {\n",
		says:   "limits.rego:",
	},
}

// hungryModule uses as much memory as Rego can. n makes each module different.
func hungryModule(n int) string {
	return fmt.Sprintf("package corral.scaling\n\nlimit contains {\"field\": \"max\", \"atMost\": count(list)} if list := [[i, %d, \"x\"] | some i in numbers.range(1, 50000000)]\n", n)
}

// While a policy cannot be evaluated, its last decision stays in force. The pool does not grow beyond it, no job
// is lost, and the conditions report the failure. The pool recovers without a restart.
func TestPoliciesThatFail(t *testing.T) {
	namespace := "policies-fail"
	w := newStory(t, namespace)
	c := w.controller(t)
	ends(t, namespace)
	must(t, w.Connect(t.Context(), namespace, "acme", namespace+"-org"))
	policy := limitPolicy(namespace, "limits", 8)
	must(t, w.Client.Create(t.Context(), policy))
	must(t, w.Client.Create(t.Context(), newPool(namespace, "linux", "acme", func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Max = new(int32(100)) })))
	waitLimits(t, key(namespace, "linux"), 8)
	jobs := harness.AddJobs(t, w.GitHub, namespace+"-org", "linux", 24, 4*time.Second)
	for _, fault := range policyFaults {
		setModule(t, policy, fault.module)
		w.waitHeld(t, key(namespace, "linux"), strings.ReplaceAll(fault.says, "NAMESPACE", namespace), 8)
		setModule(t, policy, limitModule(8))
		waitDecided(t, key(namespace, "linux"))
	}
	harness.AllDone(t, w.GitHub, jobs)
	w.vanishes(t, namespace)

	// The same holds after a restart. A pool that is created in this state is not served.
	setModule(t, policy, policyFaults[5].module)
	w.waitHeld(t, key(namespace, "linux"), policyFaults[5].says, 8)
	must(t, c.Stop())
	w.controller(t)
	ends(t, namespace) // while this controller is running
	must(t, w.Client.Create(t.Context(), newPool(namespace, "late", "acme")))
	waitReason(t, key(namespace, "late"), v1alpha1.PolicyPendingReason)
	w.waitHeld(t, key(namespace, "linux"), policyFaults[5].says, 8)
	more := harness.AddJobs(t, w.GitHub, namespace+"-org", "linux", 12, 100*time.Millisecond)
	harness.AllDone(t, w.GitHub, more)
	late := &v1alpha1.RunnerPool{}
	must(t, w.Client.Get(t.Context(), key(namespace, "late"), late))
	if late.Status.Runners.Total != 0 || late.Status.Decision != nil && late.Status.Decision.Announced != 0 {
		t.Errorf("a pool that no policy has decided on: %+v", late.Status)
	}
	setModule(t, policy, limitModule(8))
	waitDecided(t, key(namespace, "linux"))
	waitDecided(t, key(namespace, "late"))
}

// vanishes deletes the ConfigMap that contains a policy's modules.
func (w *story) vanishes(t *testing.T, namespace string) {
	t.Helper()
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "rules", Labels: map[string]string{"reconcile.fluxcd.io/watch": "Enabled"}}}
	config.Data = map[string]string{"limits.rego": limitModule(5)}
	must(t, shared.Client.Create(t.Context(), config))
	p := &v1alpha1.RunnerPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "from"}}
	p.Spec.ModulesFrom = []v1alpha1.ModulesSource{{ConfigMapRef: v1alpha1.LocalObjectReference{Name: "rules"}}}
	must(t, shared.Client.Create(t.Context(), p))
	waitLimits(t, key(namespace, "linux"), 5)
	must(t, shared.Client.Delete(t.Context(), config))
	w.waitHeld(t, key(namespace, "linux"), "ConfigMap "+namespace+"/rules", 5)
	config.ResourceVersion = ""
	must(t, shared.Client.Create(t.Context(), config))
	waitDecided(t, key(namespace, "linux"))
	must(t, shared.Client.Delete(t.Context(), p))
	waitLimits(t, key(namespace, "linux"), 8)
}

// waitHeld waits until a pool reports that a policy fails, with a fact about the failure, and keeps its limit. It counts runners on GitHub, which
// removes a runner as soon as its job is done. The Runner may report that seconds later.
func (w *story) waitHeld(t *testing.T, key client.ObjectKey, says string, maximum int32) {
	t.Helper()
	waitPool(t, key, func(p *v1alpha1.RunnerPool) error {
		ready, c := conditions.Get(p, v1alpha1.ReadyCondition), conditions.Get(p, v1alpha1.PolicyCondition)
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != v1alpha1.PolicyFailedReason || !strings.Contains(recorder.Facts(p, v1alpha1.PolicyCondition), says) || ready.Reason != v1alpha1.PolicyFailedReason {
			return fmt.Errorf("want %q, conditions are %+v", says, p.Status.Conditions)
		}
		return nil
	})
	p := &v1alpha1.RunnerPool{}
	must(t, w.Client.Get(t.Context(), key, p))
	if d := p.Status.Decision; d.Limits.GetMax() != maximum || d.Announced != maximum {
		t.Errorf("not held: %+v", d)
	}
	for _, s := range w.GitHub.Report().ScaleSets {
		if n := s.Statistics.Registered; s.Name == key.Name && strings.Contains(s.Scope, key.Namespace+"-org") && n > int(maximum)+int(maximum+3)/4 {
			t.Errorf("%d runners beyond a maximum of %d", n, maximum)
		}
	}
}

// waitDecided waits until policies decide on a pool again.
func waitDecided(t *testing.T, key client.ObjectKey) {
	t.Helper()
	waitPool(t, key, func(p *v1alpha1.RunnerPool) error {
		if !conditions.IsTrue(p, v1alpha1.PolicyCondition) || !conditions.IsReady(p) {
			return fmt.Errorf("conditions are %+v", p.Status.Conditions)
		}
		return nil
	})
}

func waitReason(t *testing.T, key client.ObjectKey, reason string) {
	t.Helper()
	waitPool(t, key, func(p *v1alpha1.RunnerPool) error {
		if got := conditions.GetReason(p, v1alpha1.ReadyCondition); got != reason {
			return fmt.Errorf("the reason is %s, not %s: %+v", got, reason, p.Status.Conditions)
		}
		return nil
	})
}

// Many pools, each with its own policy that exhausts the memory.
func TestManyHungryPolicies(t *testing.T) {
	namespace := "policies-hungry"
	w := newStory(t, namespace)
	c := w.controller(t)
	ends(t, namespace)
	must(t, w.Connect(t.Context(), namespace, "acme", namespace+"-org"))
	before, err := c.Memory()
	must(t, err)
	const pools = 6 // the policy of each runs in a child process of its own, which exits at its memory limit
	for i := range pools {
		name := fmt.Sprintf("p%d", i)
		p := limitPolicy(namespace, name, 0)
		p.Spec.Modules["limits.rego"] = hungryModule(i)
		p.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"name": name}}
		must(t, w.Client.Create(t.Context(), p))
	}
	eventually(t, func(ctx context.Context) error {
		list := &v1alpha1.RunnerPolicyList{}
		if err := w.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			if p := &list.Items[i]; !conditions.IsReady(p) {
				return fmt.Errorf("policy %s isn't loaded: %+v", p.Name, p.Status.Conditions)
			}
		}
		return nil
	})
	for i := range pools {
		name := fmt.Sprintf("p%d", i)
		must(t, w.Client.Create(t.Context(), newPool(namespace, name, "acme", func(p *v1alpha1.RunnerPool) { p.Labels = map[string]string{"name": name} })))
	}
	eventually(t, func(ctx context.Context) error {
		list := &v1alpha1.RunnerPoolList{}
		if err := w.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			p := &list.Items[i]
			if reason := conditions.GetReason(p, v1alpha1.ReadyCondition); reason != v1alpha1.PolicyPendingReason {
				return fmt.Errorf("%s is %s", p.Name, reason)
			}
		}
		return nil
	})
	peak, err := c.Memory()
	must(t, err)
	t.Logf("%.0f MiB before, %.0f MiB at the peak", before.Resident, peak.Peak)
	if peak.Peak-before.Resident > 32 {
		t.Errorf("the peak is %.0f MiB above the %.0f MiB before", peak.Peak-before.Resident, before.Resident)
	}
}

// Policies that exhaust the memory or the CPU, directly or with data, are added next to a working policy. Before and
// after the controller is killed, the pool keeps its last decision, the other namespace is not affected, and the
// leader's memory does not grow.
func TestHostilePoliciesAndALostLeader(t *testing.T) {
	namespace, beside := "policies-hostile", "policies-beside"
	w := newStory(t, namespace, beside)
	w.elect(t, "policies-lease")
	c := w.start(t)
	for _, name := range []string{namespace, beside} {
		must(t, w.Connect(t.Context(), name, "acme", name+"-org"))
		must(t, w.Client.Create(t.Context(), limitPolicy(name, "limits", 8)))
		must(t, w.Client.Create(t.Context(), newPool(name, "linux", "acme")))
		waitLimits(t, key(name, "linux"), 8)
	}
	before, err := c.Memory()
	must(t, err)
	pushed := map[string]string{
		"memory": "s := concat(\"\", [\"xxxxxxxxxxxxxxxxxxxx\" | some _ in numbers.range(1, 50000)])\n\treplace(s, \"x\", s) != \"\"",
		"cpu":    "some i in numbers.range(1, 60000)\n\tsome j in numbers.range(1, 60000)\n\ti * j == -1",
		"number": `units.parse("1e999999999") > 0`,
	}
	for name, body := range pushed {
		p := limitPolicy(namespace, name, 0)
		p.Spec.Modules["limits.rego"] = "package corral.scaling\n\nlimit contains {\"field\": \"max\", \"atMost\": 5, \"reason\": \"pushed\"} if {\n\t" + body + "\n}\n"
		must(t, w.Client.Create(t.Context(), p))
	}
	bomb := "l0: &l0 [" + strings.Repeat("x, ", 20000) + "x]\n"
	for i := 1; i <= 9; i++ {
		bomb += fmt.Sprintf("l%d: &l%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*l%d, ", i-1), 9), ", "))
	}
	must(t, w.Client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "bomb"}, Data: map[string]string{"data.yaml": bomb}}))
	from := limitPolicy(namespace, "bomb", 5)
	from.Spec.ModulesFrom = []v1alpha1.ModulesSource{{ConfigMapRef: v1alpha1.LocalObjectReference{Name: "bomb"}}}
	must(t, w.Client.Create(t.Context(), from))

	goOn := func() {
		t.Helper()
		for _, name := range []string{"bomb", "cpu", "memory", "number"} {
			w.waitHeld(t, key(namespace, "linux"), "RunnerPolicy/"+namespace+"/"+name+"\n", 8)
		}
		for _, name := range []string{namespace, beside} {
			harness.AllDone(t, w.GitHub, harness.AddJobs(t, w.GitHub, name+"-org", "linux", 5, 100*time.Millisecond))
		}
		waitDecided(t, key(beside, "linux"))
		waitLimits(t, key(beside, "linux"), 8)
	}
	goOn()
	after, err := c.Memory()
	must(t, err)
	if after.Peak-before.Peak > 64 {
		t.Errorf("the leader's peak was %.0f MiB, and is %.0f", before.Peak, after.Peak)
	}
	c.Kill()
	c = w.start(t)
	ends(t, namespace) // while this controller is running
	ends(t, beside)
	goOn()
	again, err := c.Memory()
	must(t, err)
	if again.Peak > after.Peak+64 {
		t.Errorf("the next leader's peak is %.0f MiB, that of the one before was %.0f", again.Peak, after.Peak)
	}
}
