// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fluxcd/pkg/runtime/predicates"
	"github.com/prometheus/client_golang/prometheus"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/meter"
)

// Options are the options of the controller.
type Options struct {
	// Concurrent is the number of sources that are reconciled concurrently; at least 1.
	Concurrent int
	// JitterPercent spreads the sources' intervals by this percentage in either direction, 0 to 99.
	JitterPercent int
	// DefaultServiceAccount is the name of the service account, in a source's namespace, that acts for sources without
	// spec.serviceAccountName. If it is empty, the controller acts for them.
	DefaultServiceAccount string
	// CrossNamespace allows sources to refer to sources and artifacts in other namespaces.
	CrossNamespace bool
}

// SetupWithManager watches PoolSources, their dependencies, and the kinds of Flux that they refer to. It does not watch the
// applied objects: the source corrects changes by others at its interval.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	if r.JitterPercent < 0 || r.JitterPercent > 99 {
		return fmt.Errorf("setting up the source controller: a jitter of %d%% is not between 0 and 99", r.JitterPercent)
	}
	asked := builder.WithPredicates(predicate.Or(
		predicate.GenerationChangedPredicate{}, predicates.ReconcileRequestedPredicate{}, pruneAllowed))
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.PoolSource{}, dependencyIndex, indexDependencies); err != nil {
		return fmt.Errorf("indexing the dependencies of sources: %w", err)
	}
	controller, err := ctrl.NewControllerManagedBy(mgr).
		Named("poolsource").
		For(&v1alpha1.PoolSource{}, asked).
		Watches(&v1alpha1.PoolSource{}, handler.EnqueueRequestsFromMapFunc(r.dependents), builder.WithPredicates(dependencyChanged)).
		Watches(&v1alpha1.GitHubConnection{}, handler.EnqueueRequestsFromMapFunc(holder), builder.WithPredicates(marked)).
		WatchesRawSource(&r.hosts.turns).
		WithOptions(kube.Fair(r.Concurrent, tenant)).
		Build(r)
	if err != nil {
		return err
	}
	if err := r.setupFlux(mgr, controller); err != nil {
		return fmt.Errorf("watching Flux's sources: %w", err)
	}
	return nil
}

// tenant puts all sources of a namespace into one group, so that they cannot occupy all workers if their servers do not
// answer.
func tenant(req reconcile.Request) (group, flow string) { return req.Namespace, req.Name }

// jitter changes a delay by a random amount, up to JitterPercent.
func (r *Reconciler) jitter(d time.Duration) time.Duration {
	return spread(d, r.JitterPercent, rand.Float64())
}

// spread changes a duration by up to the percentage in either direction. chance is a random number from 0 to 1.
func spread(d time.Duration, percent int, chance float64) time.Duration {
	return d + time.Duration(float64(d)*float64(percent)/100*(2*chance-1))
}

// pruneAllowed passes updates of the annotation that allows a revision to remove many pools.
var pruneAllowed = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return e.ObjectOld.GetAnnotations()[v1alpha1.AllowPruneAnnotation] != e.ObjectNew.GetAnnotations()[v1alpha1.AllowPruneAnnotation]
}}

// marked passes marked connections when the controller starts, because their source may have been deleted before.
var marked = predicate.Funcs{
	CreateFunc:  func(e event.CreateEvent) bool { return isMarked(e.Object) },
	UpdateFunc:  func(event.UpdateEvent) bool { return false },
	DeleteFunc:  func(event.DeleteEvent) bool { return false },
	GenericFunc: func(event.GenericEvent) bool { return false },
}

// holder returns the source that holds an object.
func holder(_ context.Context, object client.Object) []reconcile.Request {
	key := client.ObjectKey{Namespace: object.GetNamespace(), Name: object.GetLabels()[v1alpha1.SourceLabel]}
	return []reconcile.Request{{NamespacedName: key}}
}

var (
	syncsTotal = meter.CountersOf("corral_source_syncs_total",
		"Reconciliations of PoolSources, by reason of the Ready condition.", "reason",
		v1alpha1.SucceededReason, v1alpha1.SuspendedReason, v1alpha1.InvalidSpecReason, v1alpha1.CredentialsMissingReason,
		v1alpha1.AccessDeniedReason, v1alpha1.DependencyNotReadyReason, v1alpha1.VerificationFailedReason,
		v1alpha1.ArtifactFailedReason, v1alpha1.BuildFailedReason, v1alpha1.ApplyFailedReason, v1alpha1.PruneRefusedReason,
		v1alpha1.PruneFailedReason, v1alpha1.ProgressingWithRetryReason)
	readyGauge   = meter.OwnedBy[prometheus.Gauge](meter.Gauges("corral_source_ready", "Whether a PoolSource is ready (1) or not (0), and the reason.", "namespace", "source", "reason"))
	fetchSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "corral_source_fetch_duration_seconds", Help: "Time to fetch a new revision.",
		Buckets: prometheus.ExponentialBuckets(0.05, 2, 11),
	})
	compileSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "corral_source_compile_duration_seconds", Help: "Time to compile a new revision.",
		Buckets: prometheus.ExponentialBuckets(0.05, 2, 11),
	})
)

// Collectors returns the metrics of this package.
func Collectors() []prometheus.Collector {
	return []prometheus.Collector{syncsTotal, readyGauge, fetchSeconds, compileSeconds, reportsTotal}
}

// count records the outcome of a pass in the metrics.
func count(key client.ObjectKey, done kube.Done, outcome error) {
	reason := v1alpha1.SucceededReason
	switch {
	case outcome != nil:
		reason = kube.ReasonOf(outcome, v1alpha1.ProgressingWithRetryReason)
	case len(done.Unready) > 0:
		reason = catalog.Of(done.Unready[0].Code).Reason
	}
	syncsTotal.WithLabelValues(reason).Inc()
	uncount(key)
	ready := 0.0
	if reason == v1alpha1.SucceededReason {
		ready = 1
	}
	readyGauge.WithLabelValues(key.Namespace, key.Name, reason).Set(ready)
}

// uncount removes the time series of a source.
func uncount(key client.ObjectKey) { readyGauge.Drop(key.Namespace, key.Name) }
