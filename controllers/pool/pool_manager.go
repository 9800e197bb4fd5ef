// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"context"
	"strings"

	"github.com/fluxcd/pkg/runtime/predicates"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

const (
	// maxRunnerName is the longest name of a runner: a label's value and GitHub's bound.
	maxRunnerName = 57
	// nameSuffix is the length of the random end of a runner's name.
	nameSuffix = 8
)

// SetupWithManager watches pools, what they own, their runners' pods, and the
// words of GitHub.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, words source.Source, concurrent int) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("runnerpool").
		For(&v1alpha1.RunnerPool{}, builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicates.ReconcileRequestedPredicate{}))).
		Owns(&v1alpha1.ScaleSet{}).
		Owns(&v1alpha1.Runner{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(poolOf)).
		WatchesRawSource(words).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrent}).
		Complete(r)
}

func poolOf(_ context.Context, obj client.Object) []reconcile.Request {
	pool := obj.GetLabels()[v1alpha1.PoolLabel]
	if pool == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: pool}}}
}

// RandomName names a runner: the pool's name and a random end.
func RandomName(pool string) string {
	stem := strings.TrimRight(pool[:min(len(pool), maxRunnerName-nameSuffix-1)], "-.")
	return stem + "-" + rand.String(nameSuffix)
}

// forget drops what is remembered of a pool that is gone.
func (r *Reconciler) forget(key types.NamespacedName) {
	r.expected.drop(key)
	unmeasure(key)
}
