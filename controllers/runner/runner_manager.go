// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

var orphansTotal = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "corral_orphaned_registrations_total",
	Help: "Runner registrations left on GitHub because their connection was gone when they had to be removed.",
})

// Collectors returns the metrics of this package.
func Collectors() []prometheus.Collector { return []prometheus.Collector{orphansTotal} }

// SetupWithManager watches Runners and their Pods.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager, concurrent int) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("runner").
		For(&v1alpha1.Runner{}).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(runnerOf)).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrent}).
		Complete(r)
}

// runnerOf finds the Runner of a pod: it has the pod's name.
func runnerOf(_ context.Context, pod client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(pod)}}
}
