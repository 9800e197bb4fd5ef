// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// writers is how many ConfigMaps of pools are written or read at once.
	writers = 16
	// askers is how many connections are asked at once for one thing. One that doesn't answer takes one place, and its deadline ends that.
	askers = 64
	// minBackoff and maxBackoff are the shortest and the longest time to the next attempt of what failed.
	minBackoff, maxBackoff = 2 * time.Second, 30 * time.Second
)

// worker is a controller whose keys come from the account and not from a watch.
type worker struct {
	name       string
	concurrent int
	reconcile  reconcile.TypedFunc[types.NamespacedName]
	queue      workqueue.TypedRateLimitingInterface[types.NamespacedName] // nil until the worker is open
}

// add has a key reconciled, if the worker is open.
func (w *worker) add(key types.NamespacedName) {
	if w.queue != nil {
		w.queue.Add(key)
	}
}

func newLimiter() workqueue.TypedRateLimiter[types.NamespacedName] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](minBackoff, maxBackoff)
}

// run reconciles what is added until ctx ends.
func (w *worker) run(ctx context.Context) error {
	log := ctrl.Log.WithName(w.name)
	c, err := controller.NewTypedUnmanaged(w.name, controller.TypedOptions[types.NamespacedName]{
		Reconciler: w.reconcile, MaxConcurrentReconciles: w.concurrent, SkipNameValidation: new(true),
		LogConstructor: func(key *types.NamespacedName) logr.Logger {
			if key == nil {
				return log
			}
			return log.WithValues("namespace", key.Namespace, "name", key.Name)
		},
		NewQueue: func(string, workqueue.TypedRateLimiter[types.NamespacedName]) workqueue.TypedRateLimitingInterface[types.NamespacedName] {
			return w.queue
		},
	})
	if err != nil {
		return fmt.Errorf("making controller %s: %w", w.name, err)
	}
	return c.Start(ctx)
}

// workers do what follows from the account's changes. Only the leader's run.
type workers struct {
	jobs       *worker // reads and writes the jobs of a pool
	runners    *worker // records the job of a runner
	deliveries *worker // asks for a connection's lost deliveries
	cursors    *worker // writes down up to when those are done with
	compare    *worker // compares jobs of a connection's repositories with GitHub's lists
	groups     *worker // looks up which repositories may use which of a connection's runner groups
}

func newWorkers(k *JobTracker) workers {
	return workers{
		jobs:       &worker{name: "demand-jobs", concurrent: writers, reconcile: k.reconcileJobs},
		runners:    &worker{name: "demand-runners", concurrent: writers, reconcile: k.reconcileRunner},
		deliveries: &worker{name: "demand-deliveries", concurrent: askers, reconcile: k.ofConnection(true, k.reconcileDeliveries)},
		cursors:    &worker{name: "demand-cursors", concurrent: writers, reconcile: k.ofConnection(true, k.reconcileCursor)},
		compare:    &worker{name: "demand-compare", concurrent: askers, reconcile: k.ofConnection(false, k.reconcileComparison)},
		groups:     &worker{name: "demand-groups", concurrent: askers, reconcile: k.ofConnection(false, k.reconcileGroups)},
	}
}

// ofConnection returns a reconciler of connections of which it is known where on GitHub they are, or only of those with a webhook.
func (k *JobTracker) ofConnection(hook bool, f func(context.Context, *connection) (reconcile.Result, error)) reconcile.TypedFunc[types.NamespacedName] {
	return func(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
		k.mu.Lock()
		c := k.account.conns[key]
		ok := c != nil && c.placed && (c.hook || !hook)
		k.mu.Unlock()
		if !ok {
			return reconcile.Result{}, nil
		}
		return f(ctx, c)
	}
}

func (w *workers) all() []*worker {
	return []*worker{w.jobs, w.runners, w.deliveries, w.cursors, w.compare, w.groups}
}

func (w *workers) open() {
	for _, each := range w.all() {
		each.queue = workqueue.NewTypedRateLimitingQueueWithConfig(newLimiter(), workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{Name: each.name})
	}
}

func (w *workers) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, each := range w.all() {
		g.Go(func() error { return each.run(ctx) })
	}
	return g.Wait()
}

// addConnection has a connection asked about everything.
func (w *workers) addConnection(key types.NamespacedName) {
	for _, each := range []*worker{w.deliveries, w.cursors, w.compare, w.groups} {
		each.add(key)
	}
}

// after has a key reconciled again in about a time, and not for all keys at once.
func after(d time.Duration) reconcile.Result {
	return reconcile.Result{RequeueAfter: d - d/10 + rand.N(d/5+1)} //nolint:gosec // it guards nothing
}
