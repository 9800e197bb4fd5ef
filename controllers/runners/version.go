// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
)

// VersionTeller tells which version a runner has, and which there are.
type VersionTeller interface {
	Runner(ctx context.Context, id int64) (*rest.Runner, error)
	Releases(ctx context.Context) ([]poolstatus.Release, error)
}

// Versions keeps an account of the versions that the runners of pools have. It asks once for each revision of a pool's template, as soon as a runner of it is
// connected, and then every six hours. All of it is lost with the process, and asked for again; statuses keep what was known.
type Versions struct {
	Client client.Reader
	GitHub func(connection types.NamespacedName) (VersionTeller, bool)
	Access *connections.Access
	Now    func() time.Time

	mu     sync.Mutex
	byPool map[types.NamespacedName]lookedUp
}

// lookedUp is what GitHub said of a revision; nothing if it didn't tell.
type lookedUp struct {
	revision string
	at       time.Time
	status   *v1alpha1.RunnerVersionStatus
}

// Of returns what is known of a pool's runners; nil if that is nothing.
func (v *Versions) Of(pool types.NamespacedName) *v1alpha1.RunnerVersionStatus {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.byPool[pool].status
}

// SetupWithManager has a pool looked at when one of its runners connects.
func (v *Versions) SetupWithManager(mgr ctrl.Manager, concurrent int) error {
	return ctrl.NewControllerManagedBy(mgr).
		Named("runnerversion").
		For(&v1alpha1.RunnerPool{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.Runner{}, handler.EnqueueRequestsFromMapFunc(poolOf), builder.WithPredicates(connects())).
		WithOptions(kube.Fair(concurrent, v.classify)).
		Complete(v)
}

// poolOf finds the pool of a runner.
func poolOf(_ context.Context, runner client.Object) []reconcile.Request {
	name := types.NamespacedName{Namespace: runner.GetNamespace(), Name: runner.GetLabels()[v1alpha1.PoolLabel]}
	return []reconcile.Request{{NamespacedName: name}}
}

// connects lets runners pass that are connected by now.
func connects() predicate.Predicate {
	online := func(obj client.Object) bool {
		r, ok := obj.(*v1alpha1.Runner)
		return ok && isOnline(r)
	}
	return predicate.Funcs{
		CreateFunc:  func(e event.CreateEvent) bool { return online(e.Object) },
		UpdateFunc:  func(e event.UpdateEvent) bool { return online(e.ObjectNew) && !online(e.ObjectOld) },
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}

func isOnline(r *v1alpha1.Runner) bool {
	return r.Status.RunnerID != 0 && (r.Status.State == v1alpha1.RunnerIdle || r.Status.State == v1alpha1.RunnerBusy)
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
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.byPool, req.NamespacedName)
		return ctrl.Result{}, nil
	}
	v.mu.Lock()
	known := v.byPool[req.NamespacedName]
	v.mu.Unlock()
	if due := known.at.Add(versionInterval); known.revision == pool.Status.Revision && v.Now().Before(due) {
		return ctrl.Result{RequeueAfter: due.Sub(v.Now())}, nil
	}
	id, err := v.online(ctx, pool)
	if err != nil || id == 0 {
		return ctrl.Result{}, err // the next one that connects leads here
	}
	return v.look(ctx, pool, id)
}

// online returns the id of a runner that is connected and of the pool's revision; 0 if there is none.
func (v *Versions) online(ctx context.Context, pool *v1alpha1.RunnerPool) (int64, error) {
	list := &v1alpha1.RunnerList{}
	mine := client.MatchingLabels{v1alpha1.PoolLabel: pool.Name}
	if err := v.Client.List(ctx, list, client.InNamespace(pool.Namespace), mine, client.UnsafeDisableDeepCopy); err != nil {
		return 0, fmt.Errorf("listing runners: %w", err)
	}
	for i := range list.Items {
		if r := &list.Items[i]; r.Spec.Revision == pool.Status.Revision && isOnline(r) {
			return r.Status.RunnerID, nil
		}
	}
	return 0, nil
}

func (v *Versions) look(ctx context.Context, pool *v1alpha1.RunnerPool, id int64) (ctrl.Result, error) {
	connection := pool.Spec.ConnectionRef.From(pool.Namespace)
	if allowed, err := v.Access.Allows(ctx, connection, pool.Namespace); err != nil || !allowed {
		return ctrl.Result{RequeueAfter: versionRetry}, err
	}
	gh, ok := v.GitHub(connection)
	if !ok {
		return ctrl.Result{RequeueAfter: versionRetry}, nil
	}
	status, err := versionOf(github.InFlow(ctx, client.ObjectKeyFromObject(pool).String()), gh, id)
	if after, away := github.ComeBack(err); away {
		return ctrl.Result{RequeueAfter: max(after, versionRetry)}, nil
	}
	if status != nil {
		status.Revision = pool.Status.Revision
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.byPool == nil {
		v.byPool = map[types.NamespacedName]lookedUp{}
	}
	v.byPool[client.ObjectKeyFromObject(pool)] = lookedUp{revision: pool.Status.Revision, at: v.Now(), status: status}
	return ctrl.Result{RequeueAfter: versionInterval}, nil
}

// versionOf asks which version a runner has, and until when it is good; nil if GitHub doesn't tell the version.
func versionOf(ctx context.Context, gh VersionTeller, id int64) (*v1alpha1.RunnerVersionStatus, error) {
	runner, err := gh.Runner(ctx, id)
	if err != nil || runner == nil || runner.Version == "" {
		return nil, err
	}
	releases, err := gh.Releases(ctx)
	status := &v1alpha1.RunnerVersionStatus{Version: runner.Version}
	if latest, by, ok := poolstatus.UpdateBy(runner.Version, releases); ok {
		status.Latest = latest
		if !by.IsZero() {
			status.UpdateBy = &metav1.Time{Time: by.UTC()}
		}
	}
	return status, err
}
