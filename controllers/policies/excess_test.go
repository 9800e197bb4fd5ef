// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/policy"
)

// costly rules take too much to load and to evaluate, until isCheap is set.
type costly struct {
	loads, asked int
	isCheap      bool
}

func (c *costly) Load(context.Context, policy.Source, func() bool) (policy.Facts, []v1alpha1.Diagnostic, error) {
	c.loads++
	if !c.isCheap {
		return policy.Facts{}, nil, &policy.Excess{Message: "too much"}
	}
	return policy.Facts{Decisions: []string{policy.DecisionTemplate}}, nil, nil
}

func (c *costly) Ask(context.Context, *policy.Policy, policy.Question) ([]byte, error) {
	c.asked++
	if !c.isCheap {
		return nil, &policy.Excess{Message: "too much"}
	}
	return []byte(`{}`), nil
}

// failing rules fail without exceeding a limit.
type failing struct{ costly }

func (f *failing) Ask(context.Context, *policy.Policy, policy.Question) ([]byte, error) {
	f.asked++
	return nil, errors.New("conflicting values")
}

// Every runner of the pool needs the verdict, and an evaluation that fails can take as long as any other.
func TestAFailedVerdictIsRememberedForAWhile(t *testing.T) {
	now, rules := time.Unix(1_800_000_000, 0), &failing{}
	e := NewEngine(func() time.Time { return now })
	source := policy.Source{Kind: policy.KindRunnerPolicy, Namespace: "ci", Name: "p", Modules: map[string]string{"p.rego": "package corral.template"}}
	e.Put(policy.Elsewhere(source, policy.Facts{Decisions: []string{policy.DecisionTemplate}}, rules), source)
	pool := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "a"}}
	permit := func(times int) {
		for range times {
			answer, err := e.Permit(t.Context(), pool, "r1", []byte(`{"spec":{"containers":[{"name":"runner","image":"i"}]}}`), podspec.Network{})
			if err != nil || len(answer.Failures) != 1 {
				t.Fatalf("%v, %+v", err, answer)
			}
		}
	}
	permit(5)
	if rules.asked != 1 {
		t.Errorf("asked %d times", rules.asked)
	}
	now = now.Add(failureKept)
	permit(5)
	if rules.asked != 2 {
		t.Errorf("asked %d times after the verdict expired, want once more", rules.asked-1)
	}
}

// A remembered failure is a failure of one version of the policies. Each kind of change makes another version.
func TestARepairedPolicyIsAskedAtOnce(t *testing.T) {
	for name, repair := range map[string]func(*policy.Source){
		"rules":      func(s *policy.Source) { s.Modules = map[string]string{"p.rego": "package corral.template\n"} },
		"data":       func(s *policy.Source) { s.Data = map[string]any{"a": 1} },
		"data files": func(s *policy.Source) { s.DataFiles = map[string]string{"data.yaml": "a: 1"} },
		"parameters": func(s *policy.Source) { s.Parameters = map[string]any{"a": 1} },
	} {
		t.Run(name, func(t *testing.T) {
			now, broken, sound := time.Unix(1_800_000_000, 0), &failing{}, &costly{isCheap: true}
			e := NewEngine(func() time.Time { return now })
			source := policy.Source{Kind: policy.KindRunnerPolicy, Namespace: "ci", Name: "p", Modules: map[string]string{"p.rego": "package corral.template"}}
			decides := policy.Facts{Decisions: []string{policy.DecisionTemplate}}
			pool := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "a"}}
			failures := func() int {
				answer, err := e.Permit(t.Context(), pool, "r1", []byte(`{"spec":{"containers":[{"name":"runner","image":"i"}]}}`), podspec.Network{})
				if err != nil {
					t.Fatal(err)
				}
				return len(answer.Failures)
			}
			e.Put(policy.Elsewhere(source, decides, broken), source)
			if n := failures(); n != 1 {
				t.Fatalf("%d failures before the repair", n)
			}
			repair(&source)
			e.Put(policy.Elsewhere(source, decides, sound), source)
			if n := failures(); n != 0 || sound.asked != 1 {
				t.Errorf("%d failures after the repair, asked %d times", n, sound.asked)
			}
		})
	}
}

// A busy machine, or a child process that the kernel killed, can make a good policy take too much once. It is loaded again
// without a change.
func TestAPolicyTooCostlyToLoadIsLoadedAgain(t *testing.T) {
	scheme := kruntime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	p := &v1alpha1.RunnerPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "p"}}
	p.Spec.Modules = map[string]string{"m.rego": "package corral.template"}
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(p).WithObjects(p).Build()
	start := time.Unix(1_800_000_000, 0)
	now, rules := start, &costly{}
	r := &Reconciler{
		Reporter: kube.Reporter{Client: c, Events: events.NewFakeRecorder(100)}, Live: c, Rules: rules,
		Engine: NewEngine(func() time.Time { return now }), Kind: policy.KindRunnerPolicy,
	}
	for _, step := range []struct {
		at      time.Duration
		isCheap bool
		loads   int
		broken  bool
	}{
		{0, false, 1, true},
		{5*time.Minute - 1, false, 1, true},
		{5 * time.Minute, false, 2, true},
		{15*time.Minute - 1, true, 2, true},
		{15 * time.Minute, true, 3, false},
		{24 * time.Hour, true, 3, false},
	} {
		now, rules.isCheap = start.Add(step.at), step.isCheap
		result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ci", Name: "p"}})
		if err != nil || result.RequeueAfter <= 0 || result.RequeueAfter > recheck {
			t.Fatalf("at %s: looked at again after %s, %v", step.at, result.RequeueAfter, err)
		}
		broken := len(r.Engine.Loaded("RunnerPolicy/ci/p").Diagnostics()) > 0
		if rules.loads != step.loads || broken != step.broken {
			t.Errorf("at %s: loaded %d times, broken: %t", step.at, rules.loads, broken)
		}
	}
}

// A pool without a decision starts nothing while its policy is in quarantine. It is evaluated again each minute.
func TestANewPoolIsDecidedOnAfterAQuarantine(t *testing.T) {
	policiesGauge.Reset()
	now, rules := time.Unix(1_800_000_000, 0), &costly{}
	e := NewEngine(func() time.Time { return now })
	source := policy.Source{Kind: policy.KindRunnerPolicy, Namespace: "ci", Name: "p", Modules: map[string]string{"p.rego": "package corral.template"}}
	e.Put(policy.Elsewhere(source, policy.Facts{Decisions: []string{policy.DecisionTemplate}}, rules), source)
	permit := func(name string) []policy.Failure {
		t.Helper()
		pool := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: name}}
		answer, err := e.Permit(t.Context(), pool, "r1", []byte(`{"spec":{"containers":[{"name":"runner","image":"i"}]}}`), podspec.Network{})
		if err != nil {
			t.Fatal(err)
		}
		return answer.Failures
	}
	quarantines := func() float64 {
		return testutil.ToFloat64(policiesGauge.WithLabelValues(policy.KindRunnerPolicy, quarantined))
	}
	for range 3 {
		permit("old")
	}
	rules.isCheap = true
	var failed int
	for ; len(permit("new")) > 0; now = now.Add(time.Minute) {
		if failed++; quarantines() != 1 {
			t.Fatalf("%v policies are in quarantine after %d minutes", quarantines(), failed)
		}
	}
	if failed != 5 || rules.asked != 4 || quarantines() != 0 {
		t.Errorf("allowed after %d minutes and %d questions; %v policies are in quarantine", failed, rules.asked, quarantines())
	}
}
