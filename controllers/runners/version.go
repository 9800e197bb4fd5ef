// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/connections"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/poolstatus"
)

const (
	// versionInterval is the interval between two checks of the version of a pool's runners.
	versionInterval = 6 * time.Hour
	// versionRetry is the minimum delay before the next check if GitHub did not answer.
	versionRetry = time.Minute
	// versionTries is how many runners a check asks about, because a runner with a short job may already be gone. versionGone
	// is the delay before the next check if all of them are gone.
	versionTries, versionGone = 3, 10 * time.Minute
)

// VersionReader reads the version of a runner, and the available releases.
type VersionReader interface {
	Runner(ctx context.Context, id int64) (*rest.Runner, error)
	Releases(ctx context.Context) ([]poolstatus.Release, error)
}

// Versions records which version of the runner program each pool uses. For the revision in force, it asks GitHub as soon as
// a runner is connected, and then every six hours. It reads the available releases at the same interval, even if the pool
// has no runners. A restart of the process loses the results, which are then requested again; the pools' statuses keep the
// last known version.
type Versions struct {
	Client client.Reader
	GitHub func(connection types.NamespacedName) (VersionReader, bool)
	Access *connections.Access
	Now    func() time.Time

	byPool sync.Map // of lookedUp
}

// lookedUp is GitHub's answer about a revision; it has no status if GitHub did not answer.
type lookedUp struct {
	revision string
	// ask is the earliest time to ask about a runner again, and look the earliest time to read the releases.
	ask, look time.Time
	status    *v1alpha1.RunnerVersionStatus
}

// Of returns the known version of a pool's runners; nil if it is unknown.
func (v *Versions) Of(pool types.NamespacedName) *v1alpha1.RunnerVersionStatus {
	known, _ := v.byPool.Load(pool)
	of, _ := known.(lookedUp)
	return of.status
}

// SetupWithManager registers the controller, which checks a pool when one of its runners connects, or when its spec or its
// revision in force changes.
func (v *Versions) SetupWithManager(mgr ctrl.Manager, concurrent int) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("runnerversion").
		For(&v1alpha1.RunnerPool{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: revisionChanges})).
		Watches(&v1alpha1.Runner{}, handler.EnqueueRequestsFromMapFunc(poolOf), builder.WithPredicates(predicate.NewPredicateFuncs(isOnline), predicate.Funcs{
			UpdateFunc: func(e event.UpdateEvent) bool { return !isOnline(e.ObjectOld) },
			DeleteFunc: func(event.DeleteEvent) bool { return false },
		})).
		WithOptions(kube.Fair(concurrent, v.classify)).
		Complete(v)
}

// revisionChanges accepts updates of a pool that change its spec or the revision in force. After a roll-back, for example,
// runners of that revision may already be connected.
func revisionChanges(e event.UpdateEvent) bool {
	before, ok1 := e.ObjectOld.(*v1alpha1.RunnerPool)
	after, ok2 := e.ObjectNew.(*v1alpha1.RunnerPool)
	return !ok1 || !ok2 || before.Generation != after.Generation || before.Status.InForce() != after.Status.InForce()
}

// poolOf returns the pool of a runner.
func poolOf(_ context.Context, runner client.Object) []reconcile.Request {
	name := types.NamespacedName{Namespace: runner.GetNamespace(), Name: runner.GetLabels()[v1alpha1.PoolLabel]}
	return []reconcile.Request{{NamespacedName: name}}
}

func isOnline(obj client.Object) bool {
	r, ok := obj.(*v1alpha1.Runner)
	return ok && r.Status.RunnerID != 0 && (r.Status.State == v1alpha1.RunnerIdle || r.Status.State == v1alpha1.RunnerBusy)
}

// classify returns a pool's connection and the pool.
func (v *Versions) classify(req reconcile.Request) (connection, pool string) {
	p := &v1alpha1.RunnerPool{}
	if err := v.Client.Get(context.Background(), req.NamespacedName, p, client.UnsafeDisableDeepCopy); err != nil {
		return "", ""
	}
	return p.Spec.ConnectionRef.From(p.Namespace).String(), req.String()
}

// Reconcile checks one pool if a check is due.
func (v *Versions) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pool := &v1alpha1.RunnerPool{}
	if err := v.Client.Get(ctx, req.NamespacedName, pool); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("reading the pool: %w", err)
	} else if err != nil {
		v.byPool.Delete(req.NamespacedName)
		return ctrl.Result{}, nil
	}
	known, now := v.recall(pool), v.Now()
	var ids []int64
	var err error
	if !now.Before(known.ask) {
		if ids, err = v.online(ctx, pool, known.revision); err != nil {
			return ctrl.Result{}, err
		}
	}
	if len(ids) == 0 && (known.status == nil || now.Before(known.look)) {
		return ctrl.Result{RequeueAfter: max(0, known.look.Sub(now))}, nil // the next runner that connects triggers another pass
	}
	connection := pool.Spec.ConnectionRef.From(pool.Namespace)
	if allowed, err := v.Access.Allows(ctx, connection, pool.Namespace); err != nil || !allowed {
		return ctrl.Result{RequeueAfter: versionRetry}, err
	}
	gh, ok := v.GitHub(connection)
	if !ok {
		return ctrl.Result{RequeueAfter: versionRetry}, nil
	}
	known = known.again(github.InFlow(ctx, req.String()), gh, ids, now)
	v.byPool.Store(req.NamespacedName, known)
	return ctrl.Result{RequeueAfter: known.look.Sub(now)}, nil
}

// recall returns the known version of the revision in force, from this process's memory or else from the status.
func (v *Versions) recall(pool *v1alpha1.RunnerPool) lookedUp {
	last, _ := v.byPool.Load(client.ObjectKeyFromObject(pool))
	known, _ := last.(lookedUp)
	revision := pool.Status.InForce()
	if known.revision == revision {
		return known
	}
	known = lookedUp{revision: revision}
	if s := pool.Status.RunnerVersion; s != nil && s.Revision == revision {
		known.status = s
	}
	return known
}

// online returns the IDs of a few connected runners of a revision.
func (v *Versions) online(ctx context.Context, pool *v1alpha1.RunnerPool, revision string) (ids []int64, err error) {
	list := &v1alpha1.RunnerList{}
	mine := client.MatchingLabels{v1alpha1.PoolLabel: pool.Name}
	if err := v.Client.List(ctx, list, client.InNamespace(pool.Namespace), mine, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing runners: %w", err)
	}
	for i := range list.Items {
		if r := &list.Items[i]; r.Spec.Revision == revision && isOnline(r) && len(ids) < versionTries {
			ids = append(ids, r.Status.RunnerID)
		}
	}
	return ids, nil
}

// again asks GitHub for the version of one of the runners, if there are any, and for the releases. Answers that are missing
// leave the known values unchanged.
func (l lookedUp) again(ctx context.Context, gh VersionReader, ids []int64, now time.Time) lookedUp {
	next, wait := l, versionInterval
	runner, err := first(ctx, gh, ids)
	switch {
	case err == nil && runner == nil && len(ids) > 0:
		wait = versionGone
	case runner != nil && runner.Version != "" && (l.status == nil || l.status.Version != runner.Version):
		next.status = &v1alpha1.RunnerVersionStatus{Version: runner.Version, Revision: l.revision}
	}
	if _, away := github.ComeBack(err); !away && next.status != nil {
		var releases []poolstatus.Release
		releases, err = gh.Releases(ctx)
		if latest, by, ok := poolstatus.UpdateBy(next.status.Version, releases); ok {
			next.status = &v1alpha1.RunnerVersionStatus{Version: next.status.Version, Revision: l.revision, Latest: latest, UpdateBy: by}
		}
	}
	if after, away := github.ComeBack(err); away {
		next, wait = l, max(after, versionRetry)
	}
	if next.look = now.Add(wait); len(ids) > 0 {
		next.ask = next.look
	}
	return next
}

// first returns the first runner that still exists, or nil if all are gone.
func first(ctx context.Context, gh VersionReader, ids []int64) (runner *rest.Runner, err error) {
	for _, id := range ids {
		if runner, err = gh.Runner(ctx, id); runner != nil || err != nil {
			break
		}
	}
	return runner, err
}
