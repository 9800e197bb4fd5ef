// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package connections

import (
	"strings"

	"github.com/fluxcd/pkg/runtime/predicates"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
)

// SetupWithManager registers the reconciler. It runs on changes of a spec, on request, on its own schedule, and when calls
// for pools begin to fail or to succeed, are refused, or show that GitHub's clock differs. Several reconciliations run
// concurrently, so that a connection whose GitHub does not answer delays no other.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, concurrent int) error {
	trouble := &kube.EventSource{}
	r.Connections.OnTrouble(func(key string) {
		namespace, name, _ := strings.Cut(key, "/")
		trouble.Wake(types.NamespacedName{Namespace: namespace, Name: name})
	})
	return ctrl.NewControllerManagedBy(mgr).
		Named("githubconnection").
		For(&v1alpha1.GitHubConnection{}, builder.WithPredicates(
			predicate.Or(predicate.GenerationChangedPredicate{}, predicates.ReconcileRequestedPredicate{}))).
		WatchesRawSource(trouble).
		WithOptions(kube.Fair(concurrent, tenant)).
		Complete(r)
}

// tenant returns a connection's namespace as its group, so that the connections of one namespace cannot occupy all workers
// if none of their servers answer.
func tenant(req reconcile.Request) (group, flow string) { return req.Namespace, req.Name }
