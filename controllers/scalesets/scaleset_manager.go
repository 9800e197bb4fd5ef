// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scalesets

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/meter"
)

var orphansTotal = meter.Counter("corral_orphaned_scale_sets_total",
	"Scale sets left on GitHub because their connection was gone when they had to be deleted.")

// Collectors returns the metrics of this package.
func Collectors() []prometheus.Collector { return []prometheus.Collector{orphansTotal} }

// SetupWithManager registers the controller. It watches RunnerScaleSets, the states of their sessions, connections, and the
// end of runners for which a deletion waits.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, concurrent int) error {
	if err := errors.Join(mgr.Add(r.Sessions), kube.AddIndexes(mgr.GetFieldIndexer(), Indexes())); err != nil {
		return err
	}
	removed := predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			r, ok := e.ObjectNew.(*v1alpha1.Runner)
			return ok && r.IsReleased()
		},
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("scaleset").
		For(&v1alpha1.RunnerScaleSet{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.GitHubConnection{}, handler.EnqueueRequestsFromMapFunc(r.elsewhere), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Runner{}, handler.EnqueueRequestsFromMapFunc(scaleSetOf), builder.WithPredicates(removed)).
		WatchesRawSource(&r.Sessions.States).
		WithOptions(kube.Fair(concurrent, r.classify)).
		Complete(r)
}

// classify returns the connection of a scale set, and its pool.
func (r *Reconciler) classify(req reconcile.Request) (connection, pool string) {
	set := &v1alpha1.RunnerScaleSet{}
	if err := r.Client.Get(context.Background(), req.NamespacedName, set, client.UnsafeDisableDeepCopy); err != nil {
		return "", ""
	}
	return set.Spec.ConnectionRef.From(set.Namespace).String(), set.Namespace + "/" + set.Name
}

// elsewhere returns the scale sets in other namespaces that use a connection. A change of the connection may grant or
// withdraw its use.
func (r *Reconciler) elsewhere(ctx context.Context, obj client.Object) []reconcile.Request {
	sets := &v1alpha1.RunnerScaleSetList{}
	if err := r.Client.List(ctx, sets, kube.OnConnection(client.ObjectKeyFromObject(obj)), client.UnsafeDisableDeepCopy); err != nil {
		return nil // each scale set is reconciled again within verifyInterval
	}
	var all []reconcile.Request
	for i := range sets.Items {
		if s := &sets.Items[i]; s.Namespace != obj.GetNamespace() {
			all = append(all, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s)})
		}
	}
	return all
}

func scaleSetOf(_ context.Context, obj client.Object) []reconcile.Request {
	r, ok := obj.(*v1alpha1.Runner)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: r.Namespace, Name: r.Spec.PoolRef.Name}}}
}

// Fields of this package's indexes.
const (
	// placeField is the place on GitHub to which a connection leads.
	placeField = "place"
	// remoteField is the connection of a RunnerScaleSet, with the scale set's ID or, if that is unknown, its group and name.
	remoteField = "remote"
)

// Indexes returns the indexes with which anotherHas finds the records that may refer to the same scale set.
func Indexes() []kube.Index {
	return []kube.Index{
		{Object: &v1alpha1.GitHubConnection{}, Field: placeField, Values: placeOf},
		{Object: &v1alpha1.RunnerScaleSet{}, Field: remoteField, Values: remoteOf},
	}
}

// placeOf returns the value of placeField. It returns none for a connection with a proxy or certificates of its own,
// because another server may answer as GitHub.
func placeOf(obj client.Object) []string {
	c, ok := obj.(*v1alpha1.GitHubConnection)
	if !ok || c.Spec.Proxy != nil || c.Spec.CA != nil {
		return nil
	}
	target, err := github.ParseURL(c.Spec.URL)
	if err != nil {
		return nil
	}
	return []string{target.Place()}
}

func remoteOf(obj client.Object) []string {
	s, ok := obj.(*v1alpha1.RunnerScaleSet)
	switch {
	case !ok:
		return nil
	case s.Status.ID != 0:
		return []string{byID(connectionOf(s), s.Status.ID)}
	}
	return []string{byName(connectionOf(s), s.Spec.RunnerGroup, s.Spec.Name)}
}

func byID(connection types.NamespacedName, id int64) string {
	return fmt.Sprintf("%s id %d", connection, id)
}

// byName ignores case, as GitHub does.
func byName(connection types.NamespacedName, group, name string) string {
	return strings.ToLower(fmt.Sprintf("%s name %s/%s", connection, group, name))
}
