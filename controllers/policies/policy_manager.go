// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"slices"
	"strings"

	"github.com/fluxcd/pkg/runtime/predicates"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/policy"
)

// SetupWithManager registers the reconciler of one kind. It runs on changes of a spec, on request, when a labelled
// ConfigMap of a policy changes, when the number of bound pools changes, and each minute.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, concurrent int) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named(strings.ToLower(r.Kind)).
		For(r.empty(), builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicates.ReconcileRequestedPredicate{}))).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.readers)).
		WatchesRawSource(r.Engine.Policies[r.Kind]).
		WithOptions(kube.Fair(concurrent, tenant)).
		Complete(r)
}

// tenant makes the policies of a namespace take turns with those in other namespaces, because loading one may take long.
func tenant(req reconcile.Request) (group, flow string) { return req.Namespace, req.Name }

// WatchedConfigMaps selects the ConfigMaps whose changes are noticed at once, with the same label as Flux.
func WatchedConfigMaps() map[string]string {
	return map[string]string{"reconcile.fluxcd.io/watch": "Enabled"}
}

// readers lists the policies that refer to a ConfigMap.
func (r *Reconciler) readers(ctx context.Context, config client.Object) []reconcile.Request {
	key := client.ObjectKeyFromObject(config)
	var requests []reconcile.Request
	add := func(reader policy.Object) {
		if slices.Contains(reader.ConfigMaps(), key) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(reader)})
		}
	}
	cluster, namespaced := &v1alpha1.ClusterRunnerPolicyList{}, &v1alpha1.RunnerPolicyList{}
	if _, ok := r.empty().(*v1alpha1.ClusterRunnerPolicy); ok {
		if r.Client.List(ctx, cluster) != nil {
			return nil // the check each minute finds the change
		}
	} else if r.Client.List(ctx, namespaced, client.InNamespace(key.Namespace)) != nil {
		return nil
	}
	for i := range cluster.Items {
		add(&cluster.Items[i])
	}
	for i := range namespaced.Items {
		add(&namespaced.Items[i])
	}
	return requests
}
