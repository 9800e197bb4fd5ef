// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"strings"
	"testing"

	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/google/go-cmp/cmp"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

func TestABudgetOfOthersOverRunnersWithAJobIsTold(t *testing.T) {
	selector := func(key, value string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
	}
	withoutJobs := selector(v1alpha1.PoolLabel, "linux")
	withoutJobs.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: v1alpha1.JobIDLabel, Operator: metav1.LabelSelectorOpDoesNotExist}}
	for name, tc := range map[string]struct {
		selector *metav1.LabelSelector
		told     bool
	}{
		"over all of the pool":       {selector(v1alpha1.PoolLabel, "linux"), true},
		"over everything":            {&metav1.LabelSelector{}, true},
		"over another pool":          {selector(v1alpha1.PoolLabel, "arm"), false},
		"over those without a job":   {withoutJobs, false},
		"over nothing":               {nil, false},
		"by a label of the template": {selector("team", "a"), true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.change(func(p *v1alpha1.RunnerPool) {
				p.Spec.Scale.Idle = new(int32(1))
				p.Spec.Template.Raw = []byte(`{"metadata":{"labels":{"team":"a"}},"spec":{"containers":[{"name":"runner","image":"runner:1"}]}}`)
			})
			must(t, b.Client.Create(t.Context(), &policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "mine"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: tc.selector},
			}))
			for range 3 {
				b.reconcile()
			}
			said := conditions.Get(b.pool(), v1alpha1.DrainableCondition)
			if conditions.IsFalse(b.pool(), v1alpha1.DrainableCondition) != tc.told || tc.told && !strings.HasPrefix(said.Message, "PodDisruptionBudget mine ") {
				t.Errorf("its condition is %+v", said)
			}
			b.memory = memory{} // another process: it does not repeat what the condition already reports
			b.reconcile()
			ours := &policyv1.PodDisruptionBudget{}
			must(t, b.Client.Get(t.Context(), client.ObjectKey{Namespace: "ci", Name: budgetName}, ours))
			if len(ours.OwnerReferences) != 1 || ours.OwnerReferences[0].UID != "p1" {
				t.Errorf("it is owned by %+v", ours.OwnerReferences)
			}
			told := 0
			for recorder := b.Events.(*events.FakeRecorder); len(recorder.Events) > 0; {
				if e := <-recorder.Events; strings.Contains(e, v1alpha1.DisruptionBudgetsReason) && strings.Contains(e, "PodDisruptionBudget mine ") {
					told++
				}
			}
			if (told == 1) != tc.told || told > 1 {
				t.Errorf("told %d times", told)
			}
			must(t, b.Client.Delete(t.Context(), &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "mine"}}))
			b.reconcile()
			if said := conditions.Get(b.pool(), v1alpha1.DrainableCondition); conditions.IsFalse(b.pool(), v1alpha1.DrainableCondition) {
				t.Errorf("its condition is %+v when the other is gone", said)
			}
		})
	}
}

// If a user relaxes the budget for a drain and forgets to restore it, jobs would be evicted from then on.
func TestTheBudgetIsRepaired(t *testing.T) {
	for name, open := range map[string]func(*policyv1.PodDisruptionBudgetSpec){
		"none need be available": func(s *policyv1.PodDisruptionBudgetSpec) { s.MinAvailable = new(intstr.FromInt32(0)) },
		"all may be unavailable": func(s *policyv1.PodDisruptionBudgetSpec) {
			s.MinAvailable, s.MaxUnavailable = nil, new(intstr.FromString("100%"))
		},
		"nothing is selected": func(s *policyv1.PodDisruptionBudgetSpec) { s.Selector = nil },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Idle = new(int32(1)) })
			for range 3 {
				b.reconcile()
			}
			budget, key := &policyv1.PodDisruptionBudget{}, client.ObjectKey{Namespace: "ci", Name: budgetName}
			must(t, b.Client.Get(t.Context(), key, budget))
			open(&budget.Spec)
			must(t, b.Client.Update(t.Context(), budget))
			b.reconcile()
			must(t, b.Client.Get(t.Context(), key, budget))
			if diff := cmp.Diff(budgetSpec, budget.Spec); diff != "" {
				t.Error(diff)
			}
			budget.Spec.UnhealthyPodEvictionPolicy = new(policyv1.AlwaysAllow) // an admission webhook may set this; Corral does not manage it
			must(t, b.Client.Update(t.Context(), budget))
			repaired := budget.ResourceVersion
			b.reconcile()
			must(t, b.Client.Get(t.Context(), key, budget))
			if budget.ResourceVersion != repaired {
				t.Error("it is written at each look")
			}
		})
	}
}

// A pass may apply the budget when its pool, the last of the namespace, is already gone. Without an owner, nothing would
// ever delete the budget.
func TestABudgetNeverLacksAnOwner(t *testing.T) {
	b := newBench(t)
	pool := b.pool()
	must(t, b.Client.Delete(t.Context(), pool.DeepCopy()))
	must(t, b.applyBudget(t.Context(), observation{pool: pool}))
	budget := &policyv1.PodDisruptionBudget{}
	must(t, b.Client.Get(t.Context(), client.ObjectKey{Namespace: "ci", Name: budgetName}, budget))
	if !isOwner(pool, budget.OwnerReferences) {
		t.Errorf("owned by %+v", budget.OwnerReferences)
	}
}
