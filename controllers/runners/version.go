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
	// versionInterval is the time between two looks at the version of a pool's runners.
	versionInterval = 6 * time.Hour
	// versionRetry is the least time to the next look after one that GitHub didn't answer.
	versionRetry = time.Minute
	// versionTries is how many runners a look asks about, as one with a short job may be gone by then, and versionGone the time to the next if all are.
	versionTries, versionGone = 3, 10 * time.Minute
)

// VersionReader reads which version a runner has, and which there are.
type VersionReader interface {
	Runner(ctx context.Context, id int64) (*rest.Runner, error)
	Releases(ctx context.Context) ([]poolstatus.Release, error)
}

// Versions keeps an account of the versions that the runners of pools have. It asks once for each revision in force of a pool's template, as soon as a runner
// of it is connected, and then every six hours. Releases need no runner: they are looked at as often for a pool at zero. All of it is lost with the process,
// and asked for again; statuses keep what was known.
type Versions struct {
	Client client.Reader
	GitHub func(connection types.NamespacedName) (VersionReader, bool)
	Access *connections.Access
	Now    func() time.Time

	byPool sync.Map // of lookedUp
}

// lookedUp is what GitHub said of a revision; nothing if it didn't tell.
type lookedUp struct {
	revision string
	// ask and look are when, at the earliest, a runner is asked about again, and the releases are looked at.
	ask, look time.Time
	status    *v1alpha1.RunnerVersionStatus
}

// Of returns what is known of a pool's runners; nil if that is nothing.
func (v *Versions) Of(pool types.NamespacedName) *v1alpha1.RunnerVersionStatus {
	known, _ := v.byPool.Load(pool)
	of, _ := known.(lookedUp)
	return of.status
}

// SetupWithManager has a pool looked at when one of its runners is connected.
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

// revisionChanges lets updates of a pool pass that change its spec, or the revision in force: as after a roll-back, its runners may be connected already.
func revisionChanges(e event.UpdateEvent) bool {
	before, ok1 := e.ObjectOld.(*v1alpha1.RunnerPool)
	after, ok2 := e.ObjectNew.(*v1alpha1.RunnerPool)
	return !ok1 || !ok2 || before.Generation != after.Generation || before.Status.InForce() != after.Status.InForce()
}

// poolOf finds the pool of a runner.
func poolOf(_ context.Context, runner client.Object) []reconcile.Request {
	name := types.NamespacedName{Namespace: runner.GetNamespace(), Name: runner.GetLabels()[v1alpha1.PoolLabel]}
	return []reconcile.Request{{NamespacedName: name}}
}

func isOnline(obj client.Object) bool {
	r, ok := obj.(*v1alpha1.Runner)
	return ok && r.Status.RunnerID != 0 && (r.Status.State == v1alpha1.RunnerIdle || r.Status.State == v1alpha1.RunnerBusy)
}

// classify says that a pool waits for its connection.
func (v *Versions) classify(req reconcile.Request) (connection, pool string) {
	p := &v1alpha1.RunnerPool{}
	if err := v.Client.Get(context.Background(), req.NamespacedName, p); err != nil {
		return "", ""
	}
	return p.Spec.ConnectionRef.From(p.Namespace).String(), req.String()
}

// Reconcile looks at one pool if it is time.
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
		return ctrl.Result{RequeueAfter: max(0, known.look.Sub(now))}, nil // the next one that connects leads here, too
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

// recall returns what is known of the revision in force: of this process, or else of the status.
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

// online returns the ids of some runners that are connected and of a revision.
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

// again asks which version one of the runners has, if there are any, and for the releases. What GitHub doesn't tell stays as it was known.
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

// first returns the first of the runners that isn't gone, nil if all are.
func first(ctx context.Context, gh VersionReader, ids []int64) (runner *rest.Runner, err error) {
	for _, id := range ids {
		if runner, err = gh.Runner(ctx, id); runner != nil || err != nil {
			break
		}
	}
	return runner, err
}
