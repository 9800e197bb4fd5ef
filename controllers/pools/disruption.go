// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/fluxcd/pkg/runtime/conditions"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/podspec"
)

// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=list;watch;create;patch

// budgetName is the name of the PodDisruptionBudget for a namespace's runners that have a job.
const budgetName = "corral-busy-runners"

// budgetSpec requires more available runners than can exist, so that no eviction is allowed.
var budgetSpec = policyv1.PodDisruptionBudgetSpec{
	MinAvailable: new(intstr.FromInt32(math.MaxInt32)),
	Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: v1alpha1.PoolLabel, Operator: metav1.LabelSelectorOpExists}, {Key: v1alpha1.JobIDLabel, Operator: metav1.LabelSelectorOpExists},
	}},
}

// protect ensures that runners with a job cannot be evicted: the namespace has Corral's PodDisruptionBudget from the
// first runner on. It returns the names of foreign budgets that also select the pool's pods, and emits an event if they
// are new: the API server answers the eviction of a pod that two budgets select with an error, so drains fail.
func (r *Reconciler) protect(ctx context.Context, o observation, d decision) (foreign string, err error) {
	if o.pool.Spec.Observes() {
		return "", nil
	}
	budgets := &policyv1.PodDisruptionBudgetList{}
	if err := r.Client.List(ctx, budgets, client.InNamespace(o.key().Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return o.memory.budgets, fmt.Errorf("listing disruption budgets: %w", err)
	}
	if d.plan.Create > 0 || len(o.runners) > 0 {
		if err := r.keepBudget(ctx, o, budgets.Items); err != nil {
			return o.memory.budgets, err
		}
	}
	foreign = selecting(slices.DeleteFunc(slices.Clone(budgets.Items), isOurs), podLabels(o))
	known := v1alpha1.CausesOf(o.pool.Status.Causes, v1alpha1.DrainableCondition)
	isKnown := foreign == o.memory.budgets || conditions.IsFalse(o.pool, v1alpha1.DrainableCondition) && (len(known) == 0 || known[0].Parameter("budgets") == foreign)
	if foreign != "" && !isKnown {
		message := catalog.BudgetSelectsRunners.With(foreign).String()
		r.Event(o.pool, corev1.EventTypeWarning, v1alpha1.DisruptionBudgetsReason, message)
		kube.Warn(ctx, "Drains fail", "reason", v1alpha1.DisruptionBudgetsReason, "message", message)
	}
	return foreign, nil
}

func isOurs(b policyv1.PodDisruptionBudget) bool { return b.Name == budgetName }

// keepBudget creates or repairs the budget of the namespace's pools.
func (r *Reconciler) keepBudget(ctx context.Context, o observation, all []policyv1.PodDisruptionBudget) error {
	i := slices.IndexFunc(all, isOurs)
	if i >= 0 && !protects(all[i].Spec) {
		repaired := all[i].DeepCopy() // by a patch, because an apply would keep another manager's maxUnavailable
		repaired.Spec = *budgetSpec.DeepCopy()
		if err := r.Client.Patch(ctx, repaired, client.MergeFrom(&all[i]), kube.FieldOwner); err != nil {
			return fmt.Errorf("repairing PodDisruptionBudget %s: %w", budgetName, err)
		}
	}
	if i < 0 || !isOwner(o.pool, all[i].OwnerReferences) {
		return r.applyBudget(ctx, o)
	}
	return nil
}

// markDrainable sets the condition that reports whether foreign budgets make drains fail.
func markDrainable(pool *v1alpha1.RunnerPool, foreign string) {
	if foreign == "" {
		conditions.MarkTrue(pool, v1alpha1.DrainableCondition, v1alpha1.NoOtherBudgetsReason, "no other PodDisruptionBudget selects runners that have a job")
		return
	}
	kube.Mark(pool, v1alpha1.DrainableCondition, catalog.BudgetSelectsRunners.With(foreign))
}

// protects reports whether a budget's relevant fields match Corral's spec. An admission webhook may have added others.
func protects(spec policyv1.PodDisruptionBudgetSpec) bool {
	return spec.MaxUnavailable == nil && equality.Semantic.DeepEqual(spec.MinAvailable, budgetSpec.MinAvailable) && equality.Semantic.DeepEqual(spec.Selector, budgetSpec.Selector)
}

func isOwner(pool *v1alpha1.RunnerPool, owners []metav1.OwnerReference) bool {
	return slices.ContainsFunc(owners, func(o metav1.OwnerReference) bool { return o.UID == pool.UID })
}

// applyBudget creates the budget of the namespace's pools, which own it. Kubernetes deletes it when the last of these
// pools is gone.
func (r *Reconciler) applyBudget(ctx context.Context, o observation) error {
	pools := &v1alpha1.RunnerPoolList{}
	if err := r.Client.List(ctx, pools, client.InNamespace(o.key().Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing the namespace's pools: %w", err)
	}
	budget := &policyv1.PodDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(), Kind: "PodDisruptionBudget"},
		ObjectMeta: metav1.ObjectMeta{Namespace: o.key().Namespace, Name: budgetName},
		Spec:       *budgetSpec.DeepCopy(),
	}
	owners := []*v1alpha1.RunnerPool{o.pool} // even if it was deleted in the meantime: a budget without an owner would stay forever
	for i := range pools.Items {
		if p := &pools.Items[i]; p.UID != o.pool.UID && p.DeletionTimestamp.IsZero() && !p.Spec.Observes() {
			owners = append(owners, p)
		}
	}
	for _, p := range owners {
		budget.OwnerReferences = append(budget.OwnerReferences, metav1.OwnerReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "RunnerPool", Name: p.Name, UID: p.UID,
		})
	}
	return kube.Apply(ctx, r.Client, budget)
}

// podLabels returns the labels of the pool's pods that have a job.
func podLabels(o observation) labels.Set {
	var template struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	}
	_ = json.Unmarshal(o.revisions.templates[o.template.revision], &template) // an unreadable template creates no pods
	all := podspec.Labels(podspec.Runner{Name: "runner", Pool: o.pool.Name, Revision: o.template.revision}, template.Metadata.Labels)
	for _, key := range []string{v1alpha1.JobIDLabel, v1alpha1.JobRunIDLabel, v1alpha1.JobRepositoryLabel} {
		all[key] = "job"
	}
	return all
}

// selecting returns the names of the budgets that select a pod.
func selecting(budgets []policyv1.PodDisruptionBudget, pod labels.Set) string {
	var names []string
	for i := range budgets {
		if s, err := metav1.LabelSelectorAsSelector(budgets[i].Spec.Selector); err == nil && s.Matches(pod) {
			names = append(names, budgets[i].Name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
