// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"github.com/fluxcd/pkg/runtime/predicates"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// parallel is how many connections are looked at at once, so that those whose GitHub
// doesn't answer hold up no other.
const parallel = 10

// SetupWithManager registers the reconciler: it runs on changes of a spec, on request,
// and by its own schedule.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("githubconnection").
		For(&v1alpha1.GitHubConnection{}, builder.WithPredicates(
			predicate.Or(predicate.GenerationChangedPredicate{}, predicates.ReconcileRequestedPredicate{}))).
		WithOptions(controller.Options{MaxConcurrentReconciles: parallel}).
		Complete(r)
}
