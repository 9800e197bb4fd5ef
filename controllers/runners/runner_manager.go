// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"context"
	"reflect"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/meter"
	"github.com/corral-dev/corral/internal/poolstatus"
)

var orphansTotal = meter.Counter("corral_orphaned_registrations_total",
	"Runner registrations left on GitHub because their connection was gone when they had to be removed.")

var leaksTotal = meter.Counter("corral_leaked_registrations_removed_total",
	"Runner registrations of pools that had no Runner and were removed from GitHub.")

// Collectors returns the metrics of this package.
func Collectors() []prometheus.Collector { return []prometheus.Collector{orphansTotal, leaksTotal} }

// SetupWithManager registers the controller, which watches Runners and their pods.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, concurrent int) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("runner").
		For(&v1alpha1.Runner{}, builder.WithPredicates(predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, statusLost(), terminated()))).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(runnerOf), builder.WithPredicates(PodChanged(), r.podGone())).
		WatchesRawSource(&r.Memory.wakes).
		WithOptions(kube.Fair(concurrent, r.classify)).
		Complete(r)
}

// runnerOf returns the Runner of a pod, which has the pod's name.
func runnerOf(_ context.Context, pod client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(pod)}}
}

// classify returns the connection and the pool of a runner, so that pools take turns.
func (r *Reconciler) classify(req reconcile.Request) (connection, pool string) {
	runner := &v1alpha1.Runner{}
	if err := r.Client.Get(context.Background(), req.NamespacedName, runner, client.UnsafeDisableDeepCopy); err != nil {
		return "", ""
	}
	return runner.Spec.ConnectionRef.From(runner.Namespace).String(), runner.Namespace + "/" + runner.Spec.PoolRef.Name
}

// statusLost accepts updates in which the object lost its status, for example because a backup was restored.
func statusLost() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok1 := e.ObjectOld.(*v1alpha1.Runner)
		after, ok2 := e.ObjectNew.(*v1alpha1.Runner)
		return ok1 && ok2 && before.Status.State != "" && after.Status.State == ""
	}}
}

// terminated accepts updates that change the annotation with which a user terminates a runner.
func terminated() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetAnnotations()[v1alpha1.TerminateAnnotation] != e.ObjectNew.GetAnnotations()[v1alpha1.TerminateAnnotation]
	}}
}

// podGone accepts all events, and records the last state of each deleted pod.
func (r *Reconciler) podGone() predicate.Predicate {
	return predicate.Funcs{DeleteFunc: func(e event.DeleteEvent) bool {
		if pod, ok := e.Object.(*corev1.Pod); ok {
			r.Memory.recordGone(pod)
		}
		return true
	}}
}

// PodChanged accepts updates of pods that change the observed state of a runner.
func PodChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok1 := e.ObjectOld.(*corev1.Pod)
		after, ok2 := e.ObjectNew.(*corev1.Pod)
		return !ok1 || !ok2 || before.UID != after.UID || !reflect.DeepEqual(seen(before), seen(after))
	}}
}

// seen returns the part of a runner's observation that depends only on its pod.
func seen(pod *corev1.Pod) poolstatus.Observation {
	return poolstatus.Observe(&v1alpha1.Runner{}, pod, 0, time.Unix(1<<35, 0)) // later than any time in a pod, so that only changes of the pod change the result
}
