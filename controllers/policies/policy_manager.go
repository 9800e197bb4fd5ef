// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"fmt"
	"strings"

	"github.com/fluxcd/pkg/runtime/predicates"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
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

// SetupWithManager registers the reconciler of one kind. The reconciler runs when the spec of a policy changes, when a
// user requests it, when a labeled ConfigMap of a policy changes, when the number of bound pools changes, and every
// minute.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, concurrent int) error {
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), r.empty(), configMapField, indexConfigMaps); err != nil {
		return fmt.Errorf("indexing policies by ConfigMap: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named(strings.ToLower(r.Kind)).
		For(r.empty(), builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, predicates.ReconcileRequestedPredicate{}))).
		WatchesMetadata(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(r.readers)).
		WatchesRawSource(r.Engine.Policies[r.Kind]).
		WithOptions(kube.Fair(concurrent, tenant)).
		Complete(r)
}

// tenant makes the namespaces take turns, because loading a policy may take long.
func tenant(req reconcile.Request) (group, flow string) { return req.Namespace, req.Name }

// WatchedConfigMaps returns the label of ConfigMaps whose changes the controller notices at once. Flux uses the same
// label.
func WatchedConfigMaps() map[string]string {
	return map[string]string{"reconcile.fluxcd.io/watch": "Enabled"}
}

// configMapField is the name of the index of policies by the ConfigMaps that they refer to.
const configMapField = "spec.modulesFrom"

func indexConfigMaps(reader client.Object) []string {
	var names []string
	for _, key := range reader.(policy.Object).ConfigMaps() {
		names = append(names, key.String())
	}
	return names
}

// readers returns the policies that refer to a ConfigMap. It must be quick, because the goroutine that receives the
// events of all namespaces calls it for each event. So it uses the index and copies no policy.
func (r *Reconciler) readers(ctx context.Context, config client.Object) (requests []reconcile.Request) {
	readers := client.ObjectList(&v1alpha1.RunnerPolicyList{})
	if r.Kind == policy.KindClusterRunnerPolicy {
		readers = &v1alpha1.ClusterRunnerPolicyList{}
	}
	err := r.Client.List(ctx, readers, client.MatchingFields{configMapField: client.ObjectKeyFromObject(config).String()}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil // the check every minute finds the change
	}
	_ = apimeta.EachListItem(readers, func(reader runtime.Object) error {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(reader.(client.Object))})
		return nil
	})
	return requests
}
