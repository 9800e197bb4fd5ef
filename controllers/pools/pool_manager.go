// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"time"

	"github.com/fluxcd/pkg/runtime/predicates"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/runners"
	"github.com/corral-dev/corral/internal/kube"
)

// gathering is how long events of runners and pods are collected for one pass, because a burst brings hundreds per second.
// Messages from GitHub are handled at once.
const gathering = 100 * time.Millisecond

// SetupWithManager watches pools, the objects that they own, their runners' pods, and the events of GitHub and other demand
// sources.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, concurrent int, events ...source.Source) error {
	b := ctrl.NewControllerManagedBy(mgr).
		Named("runnerpool").
		For(&v1alpha1.RunnerPool{}, builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicates.ReconcileRequestedPredicate{}, retryRequested()))).
		Owns(&v1alpha1.RunnerScaleSet{}).
		Watches(&v1alpha1.Runner{}, r.memory.ofRunners(), builder.WithPredicates(runnerChanged())).
		Watches(&corev1.Pod{}, gathered(), builder.WithPredicates(runners.PodChanged())).
		Watches(&v1alpha1.GitHubConnection{}, handler.EnqueueRequestsFromMapFunc(r.poolsOf), builder.WithPredicates(connectionChanged())).
		WatchesRawSource(&r.Policies.Pools).
		WithOptions(kube.Fair(concurrent, tenant))
	for _, e := range events {
		b = b.WatchesRawSource(e)
	}
	return b.Complete(r)
}

// tenant makes namespaces take turns, because evaluating the policies of one namespace may take long.
func tenant(req reconcile.Request) (group, flow string) { return req.Namespace, req.Name }

// poolsOf returns the pools that refer to a connection. A change of the connection may grant or withdraw its use, or change
// the pods of the pools.
func (r *Reconciler) poolsOf(ctx context.Context, obj client.Object) []reconcile.Request {
	pools := &v1alpha1.RunnerPoolList{}
	if err := r.Client.List(ctx, pools, kube.OnConnection(client.ObjectKeyFromObject(obj)), client.UnsafeDisableDeepCopy); err != nil {
		return nil // each pool reconciles once a minute anyway
	}
	var all []reconcile.Request
	for i := range pools.Items {
		all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&pools.Items[i])})
	}
	return all
}

// connectionChanged passes updates of connections that change what pools do or report.
func connectionChanged() predicate.Predicate {
	return predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok1 := e.ObjectOld.(*v1alpha1.GitHubConnection)
		after, ok2 := e.ObjectNew.(*v1alpha1.GitHubConnection)
		return !ok1 || !ok2 || before.Status.FormerCredentials != after.Status.FormerCredentials
	}})
}

// gathered triggers one pass for the pool of an object a moment after the first of many events.
func gathered() handler.Funcs {
	wake := func(q workqueue.TypedRateLimitingInterface[reconcile.Request], obj client.Object) {
		if pool := obj.GetLabels()[v1alpha1.PoolLabel]; pool != "" {
			q.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: obj.GetNamespace(), Name: pool}}, gathering)
		}
	}
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	return handler.Funcs{
		CreateFunc:  func(_ context.Context, e event.CreateEvent, q queue) { wake(q, e.Object) },
		UpdateFunc:  func(_ context.Context, e event.UpdateEvent, q queue) { wake(q, e.ObjectNew) },
		DeleteFunc:  func(_ context.Context, e event.DeleteEvent, q queue) { wake(q, e.Object) },
		GenericFunc: func(_ context.Context, e event.GenericEvent, q queue) { wake(q, e.Object) },
	}
}

// ofRunners triggers passes like gathered. It also stops expecting a deleted runner, which may have been created and
// deleted between two passes.
func (m *memory) ofRunners() handler.EventHandler {
	h := gathered()
	wake := h.DeleteFunc
	h.DeleteFunc = func(ctx context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		m.gone(types.NamespacedName{Namespace: e.Object.GetNamespace(), Name: e.Object.GetLabels()[v1alpha1.PoolLabel]}, e.Object.GetName())
		wake(ctx, e, q)
	}
	return h
}

// runnerChanged passes updates of Runners that change more than what the events of their pods show already.
func runnerChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok1 := e.ObjectOld.(*v1alpha1.Runner)
		after, ok2 := e.ObjectNew.(*v1alpha1.Runner)
		return !ok1 || !ok2 || before.Generation != after.Generation || before.Status.Cause != after.Status.Cause ||
			before.Status.State != after.Status.State || before.IsReleased() != after.IsReleased()
	}}
}
