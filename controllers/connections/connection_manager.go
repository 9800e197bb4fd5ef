// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package connections

import (
	"context"
	"strings"

	"github.com/fluxcd/pkg/runtime/predicates"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
)

// SetupWithManager registers the reconciler: it runs on changes of a spec, on request,
// and by its own schedule. Several run at once, so that a connection whose GitHub
// doesn't answer holds up no other. It runs, too, when calls for pools begin to fail or to succeed.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, concurrent int) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("githubconnection").
		For(&v1alpha1.GitHubConnection{}, builder.WithPredicates(
			predicate.Or(predicate.GenerationChangedPredicate{}, predicates.ReconcileRequestedPredicate{}))).
		WatchesRawSource(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			r.Connections.OnTrouble(func(key string) {
				namespace, name, _ := strings.Cut(key, "/")
				q.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
			})
			return nil
		})).
		WithOptions(kube.Fair(concurrent, tenant)).
		Complete(r)
}

// tenant has the connections of one namespace wait for each other, should all of them
// lead to nowhere.
func tenant(req reconcile.Request) (group, flow string) { return req.Namespace, req.Name }
