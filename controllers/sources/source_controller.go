// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package sources makes the cluster match what a Git repository or a Flux artifact declares: it fetches a revision, compiles
// it, applies its objects and prunes objects that the revision no longer declares. A revision that does not compile, or that
// would remove too many pools, changes nothing.
package sources

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/gitsource"
	"github.com/corral-dev/corral/internal/kube"
)

// fieldOwner is the field manager of applied objects.
const fieldOwner = client.FieldOwner("corral-source")

// Fetcher reads Git repositories.
type Fetcher interface {
	// Resolve returns the revision of a request at low cost.
	Resolve(context.Context, gitsource.Request) (string, error)
	// Fetch reads the files of the current revision of a request.
	Fetch(context.Context, gitsource.Request) (gitsource.Checkout, error)
}

// Compiler compiles files to objects, within limits. The result's diagnostics report errors in the files and exceeded
// limits. An error means that the compiler could not run.
type Compiler interface {
	Compile(context.Context, fs.FS, compile.Options) (compile.Result, error)
}

// +kubebuilder:rbac:groups=corral.dev,resources=poolsources,verbs=get;list;watch
// +kubebuilder:rbac:groups=corral.dev,resources=poolsources/status,verbs=patch
// +kubebuilder:rbac:groups=corral.dev,resources=runnerpools;githubconnections;runnerpolicies,verbs=get;list;create;patch;delete
// +kubebuilder:rbac:groups=corral.dev,resources=runnerscalesets;runners,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles PoolSources.
type Reconciler struct {
	kube.Reporter
	// Live reads without a cache: Secrets by name, and the labels that record which source holds an object.
	Live        client.Reader
	Impersonate Impersonate
	Fetcher     Fetcher
	Artifacts   Artifacts
	Compiler    Compiler
	Options

	flux     *fluxWatch
	hosts    *hosts
	compiled *compileCache
	claims   sync.Map // of namespace to chan struct{}

	withRights sync.Map // of types.NamespacedName to *v1alpha1.PoolSource, because a source may be gone before its objects can be deleted

	keepsDiagnoses bool     // for a CommitStatusReporter
	diagnoses      sync.Map // of types.NamespacedName to diagnosis
}

// Impersonate returns a client that acts as a service account.
type Impersonate func(account types.NamespacedName) (client.Client, error)

// New returns a reconciler of PoolSources. live reads without a cache.
func New(report kube.Reporter, live client.Reader, as Impersonate, fetcher Fetcher, artifacts Artifacts, compiler Compiler, options Options) *Reconciler {
	return &Reconciler{
		Reporter: report, Live: live, Impersonate: as, Fetcher: fetcher, Artifacts: artifacts, Compiler: compiler, Options: options,
		flux: newFluxWatch(), hosts: newHosts(options.Concurrent), compiled: newCompileCache(CacheMemory),
	}
}

// pass is one reconciliation of one source. Its fields are set at the beginning and do not change, except for the turns and
// the number of requests.
type pass struct {
	*Reconciler
	source    *v1alpha1.PoolSource
	attempt   *kube.Attempt
	actor     actor
	requested bool // an annotation requests this pass
	turn      *turn
	long      *turn // the turn of a long pass, see request
	requests  int
}

// outcome is the result of a pass, which may have failed at any step.
type outcome struct {
	built built
	holds sets.Set[id] // objects that the source holds now; nil if they could not be read
	done  kube.Done
}

// Reconcile brings one source up to date, as a chain of values:
//
//  1. check: can this source's name be used in a label?
//  2. identify → actor: as which account are objects applied and pruned?                (identity.go)
//  3. bind → held objects: make them follow spec.deletionPolicy, even when suspended    (hold.go)
//  4. refer: are its references to other namespaces allowed?                           (depends.go)
//  5. resolve → revision: to which revision does the reference resolve?                (build.go, flux.go)
//  6. depend: are its dependencies ready?                                              (depends.go)
//  7. build → built: fetch and compile the revision, unless it is cached               (build.go)
//  8. decide → plan: what to apply, refuse and remove; a pure function                 (plan.go)
//  9. apply → applied objects: server-side; pools once policies are in force           (apply.go)
//  10. prune → deleted objects: those that the source no longer declares, pools first  (apply.go)
//  11. project → status: the revision, its diagnostics, the inventory
//
// A PoolSource has no finalizer. When it is deleted, the garbage collector deletes the objects with its owner reference.
// Connections and the objects that grant rights to runners' hooks have no owner reference, because they must stay while
// runners need them. The controller deletes them itself: see clear in hold.go and clearRights in account.go.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	source := &v1alpha1.PoolSource{}
	if err := r.Client.Get(ctx, req.NamespacedName, source); err != nil || !source.DeletionTimestamp.IsZero() {
		r.diagnoses.Delete(req.NamespacedName)
		uncount(req.NamespacedName)
		if apierrors.IsNotFound(err) {
			return r.unlessBusy(r.clear(ctx, req.NamespacedName))
		}
		if err == nil {
			r.rememberRights(source)
		}
		return ctrl.Result{}, err
	}
	attempt := r.Begin(source)
	if err := kube.Unreadable(source); err != nil {
		return attempt.Finish(ctx, kube.Done{}, err)
	}
	o, err := r.run(ctx, source, attempt)
	if errors.Is(err, errBusy) {
		return r.unlessBusy(ctrl.Result{}, err)
	}
	applied := source.Status.LastAppliedRevision
	source.Status = project(source, o, err)
	o.done.News = err == nil && source.Status.LastAppliedRevision != applied
	r.rememberRights(source)
	count(req.NamespacedName, o.done, err)
	r.keepDiagnostics(source, o.built.revision, err)
	attempt.About(o.built.revision.outcomeMetadata())
	return attempt.Finish(ctx, o.done, err)
}

// unlessBusy replaces errBusy with a retry after about busyRetry. The status keeps the outcome of the previous pass.
func (r *Reconciler) unlessBusy(result ctrl.Result, err error) (ctrl.Result, error) {
	if errors.Is(err, errBusy) {
		return ctrl.Result{RequeueAfter: r.jitter(busyRetry)}, nil
	}
	return result, err
}

// run executes the steps of a pass, up to the first error.
func (r *Reconciler) run(ctx context.Context, source *v1alpha1.PoolSource, attempt *kube.Attempt) (o outcome, err error) {
	o.done.After = r.jitter(source.Spec.Interval.Duration)
	if err := check(source); err != nil {
		return o, err
	}
	p := &pass{Reconciler: r, source: source, attempt: attempt}
	defer p.leaveLong()
	if err := p.resume(); err != nil {
		return o, err
	}
	if request, ok := meta.ReconcileAnnotationValue(source.Annotations); ok {
		p.requested = request != source.Status.LastHandledReconcileAt
	}
	if p.actor, err = r.identify(source); err != nil {
		return o, err
	}
	if o.holds, err = p.bind(ctx); err != nil {
		return o, err
	}
	if source.Spec.Suspend {
		o.done = kube.Done{Unready: []catalog.Cause{catalog.SourceSuspended.With()}}
		return o, nil
	}
	if o.built, err = p.fetchAndBuild(ctx); err != nil {
		return o, err
	}
	return p.carryOut(ctx, o)
}

// fetchAndBuild returns the build of the source's current revision. With an error, it returns the revision that the error
// concerns, if known.
func (p *pass) fetchAndBuild(ctx context.Context) (built, error) {
	defer p.leave(nil) // also if a library panics
	if err := p.refer(); err != nil {
		return built{}, err
	}
	rev, err := p.resolve(ctx)
	if err != nil {
		return built{}, err
	}
	if err := p.depend(ctx, rev.name); err != nil {
		return built{revision: rev}, err
	}
	return p.build(ctx, rev)
}

// carryOut applies the objects of a build, and prunes. Meanwhile no other source of the namespace applies or prunes, so that
// two sources cannot take over the same object.
func (p *pass) carryOut(ctx context.Context, o outcome) (outcome, error) {
	release, err := p.claim()
	if err != nil {
		return o, err
	}
	defer release()
	now, err := p.look(ctx, p.declaredIDs(o.built))
	if err != nil {
		return o, err
	}
	rev := o.built.revision
	plan, err := decide(p.source, o.built, now)
	o.holds = sets.New(plan.held...).Union(p.unreadable())
	if err != nil {
		return o, err
	}
	if o.holds, err = p.intend(ctx, plan, o.holds); err != nil {
		return o, err
	}
	applied, err := p.apply(ctx, rev, plan)
	o.holds.Insert(applied...)
	if err != nil {
		return o, err
	}
	p.reportRightsLeft(rev)
	o.holds = o.holds.Difference(p.unreadable())
	gone, waiting, err := p.prune(ctx, rev, plan)
	o.holds.Delete(gone...)
	o.done.Message = fmt.Sprintf("Applied revision %s: %s", rev.name, plan.summary())
	for _, i := range waiting {
		o.done.Notes = append(o.done.Notes, catalog.KeptWhileNeeded.With(i, needing(i.kind)))
		o.done.After = min(o.done.After, stillNeeded)
	}
	return o, err
}

// check refuses a source that cannot be processed.
func check(source *v1alpha1.PoolSource) error {
	if errs := validation.IsValidLabelValue(source.Name); len(errs) > 0 {
		return kube.Stall(catalog.SourceNameInvalid.With().Detailed(errs[0]))
	}
	ref := source.Spec.SourceRef
	if source.Spec.Git == nil && (ref == nil || fluxKinds[ref.Kind] == nil) {
		return kube.Stall(catalog.SourceNotNamed.With())
	}
	return nil
}

// project returns the status after a pass, except for the conditions, which the attempt sets.
func project(source *v1alpha1.PoolSource, o outcome, err error) v1alpha1.PoolSourceStatus {
	status := source.Status
	if request, ok := meta.ReconcileAnnotationValue(source.Annotations); ok && !source.Spec.Suspend {
		status.SetLastHandledReconcileRequest(request)
	}
	if o.built.attempted {
		diagnostics := o.built.result.Diagnostics
		status.LastAttemptedRevision = o.built.revision.name
		status.Diagnostics = slices.Clone(diagnostics[:min(len(diagnostics), maxStatusDiagnostics)])
		if err == nil {
			status.LastAppliedRevision = o.built.revision.name
		}
	}
	if o.holds != nil {
		status.Inventory = inventory(source.Namespace, o.holds)
	}
	return status
}

// minRetry is the minimum delay before a retry, as for spec.interval: a shorter delay would be no back-off, and with 0 there
// would be no retry.
const minRetry = time.Second

// retryAfter returns the delay before the next attempt after a failure.
func (p *pass) retryAfter() time.Duration {
	return p.jitter(max(minRetry, p.source.Spec.GetRetryInterval()))
}
