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

	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/turns"
)

const (
	// writers is the maximum number of concurrent reconciles of a worker that does not query GitHub. Most of them read or
	// write ConfigMaps.
	writers = 32
	// askers is the same for a worker that queries GitHub. A connection that does not answer occupies one place, until the
	// deadline of its request.
	askers = 64
	// minBackoff and maxBackoff limit the delay before a failed operation is retried.
	minBackoff, maxBackoff = 2 * time.Second, 30 * time.Second
)

// worker is a controller whose keys come from the tracked jobs rather than from a watch. Namespaces take turns, and one
// namespace may use a quarter of the concurrent reconciles.
type worker struct {
	name       string
	concurrent int
	reconcile  reconcileKey
	queue      kube.Queue
}

type reconcileKey = func(ctx context.Context, key types.NamespacedName) (reconcile.Result, error)

func newWorker(name string, concurrent int, f reconcileKey) *worker {
	options := turns.QueueOptions{Name: name, Classify: tenant, PerGroup: concurrent / 4, PerOwner: concurrent / 4, Limiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minBackoff, maxBackoff)}
	return &worker{name: name, concurrent: concurrent, reconcile: f, queue: turns.NewQueue(options)}
}

// tenant returns the group and the flow of a key in the work queue. Namespaces take turns, and so do the keys of a
// namespace.
func tenant(req reconcile.Request) (group, flow string) { return req.Namespace, req.Name }

// add queues a key for reconciliation once the worker runs.
func (w *worker) add(key types.NamespacedName) { w.queue.Add(reconcile.Request{NamespacedName: key}) }

// run reconciles queued keys until ctx ends.
func (w *worker) run(ctx context.Context) error {
	log := ctrl.Log.WithName(w.name)
	c, err := controller.NewTypedUnmanaged(w.name, controller.Options{
		Reconciler: reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			return w.reconcile(ctx, req.NamespacedName)
		}),
		MaxConcurrentReconciles: w.concurrent, SkipNameValidation: new(true),
		LogConstructor: func(req *reconcile.Request) logr.Logger {
			if req == nil {
				return log
			}
			return log.WithValues("namespace", req.Namespace, "name", req.Name)
		},
		NewQueue: func(string, workqueue.TypedRateLimiter[reconcile.Request]) kube.Queue { return w.queue },
	})
	if err != nil {
		return fmt.Errorf("creating controller %s: %w", w.name, err)
	}
	return c.Start(ctx)
}

// workers handle the consequences of changes in the tracked jobs. They run on the leader only.
type workers struct {
	jobs       *worker // reads and writes the jobs of a pool
	runners    *worker // records the job of a runner
	deliveries *worker // recovers a connection's lost deliveries
	cursors    *worker // stores up to when deliveries have been processed
	compare    *worker // compares jobs of a connection's repositories with GitHub's lists
	groups     *worker // looks up which repositories may use the runner groups of a namespace's pools
	unmatched  *worker // assigns a namespace's unmatched jobs to pools that changed
}

func newWorkers(k *JobTracker) workers {
	return workers{
		jobs:       newWorker("demand-jobs", writers, k.reconcileJobs),
		runners:    newWorker("demand-runners", writers, k.reconcileRunner),
		deliveries: newWorker("demand-deliveries", askers, k.ofConnection(true, k.reconcileDeliveries)),
		cursors:    newWorker("demand-cursors", writers, k.ofConnection(true, k.reconcileCursor)),
		compare:    newWorker("demand-compare", askers, k.ofConnection(false, k.reconcileComparison)),
		groups:     newWorker("demand-groups", askers, k.ofSpace(k.reconcileGroups)),
		unmatched:  newWorker("demand-unmatched", writers, k.ofSpace(k.reconcileUnmatched)),
	}
}

// ofConnection returns a reconciler that calls f for connections. It skips a connection whose scope is unknown and, if hook
// is true, a connection without a webhook.
func (k *JobTracker) ofConnection(hook bool, f func(context.Context, *connection) (reconcile.Result, error)) reconcileKey {
	return func(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
		c, _ := k.connection(key)
		if c == nil || !c.isUsable(hook) {
			return reconcile.Result{}, nil
		}
		return f(ctx, c)
	}
}

// ofSpace returns a reconciler that calls f for spaces. The namespace of a key is the namespace of the pools, and its name
// is the namespace of the connections.
func (k *JobTracker) ofSpace(f func(context.Context, *space) (reconcile.Result, error)) reconcileKey {
	return func(ctx context.Context, key types.NamespacedName) (reconcile.Result, error) {
		k.mu.Lock()
		s := k.spaces[key.Name][key.Namespace]
		k.mu.Unlock()
		if s == nil {
			return reconcile.Result{}, nil
		}
		return f(ctx, s)
	}
}

func (w *workers) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, each := range []*worker{w.jobs, w.runners, w.deliveries, w.cursors, w.compare, w.groups, w.unmatched} {
		g.Go(func() error { return each.run(ctx) })
	}
	return g.Wait()
}

// addConnection queues all work for a connection.
func (w *workers) addConnection(key types.NamespacedName) {
	for _, each := range []*worker{w.deliveries, w.cursors, w.compare} {
		each.add(key)
	}
}

// after returns a result that requeues a key after about the given time, spread so that not all keys are reconciled at
// once.
func after(d time.Duration) reconcile.Result {
	return reconcile.Result{RequeueAfter: d - d/10 + rand.N(d/5+1)} //nolint:gosec // it guards nothing
}
