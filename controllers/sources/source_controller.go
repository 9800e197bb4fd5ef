// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package sources makes the cluster hold what a Git repository, or an artifact of Flux, declares: it fetches a
// revision, compiles it, applies its objects and prunes what left it. A revision that does
// not compile, or that would remove too much, changes nothing.
package sources

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/gitsource"
	"github.com/corral-dev/corral/internal/kube"
)

// fieldOwner is the field manager of what sources apply.
const fieldOwner = client.FieldOwner("corral-source")

// Fetcher reads Git repositories.
type Fetcher interface {
	// Resolve returns the revision a request stands for, cheaply.
	Resolve(context.Context, gitsource.Request) (string, error)
	// Fetch reads that revision.
	Fetch(context.Context, gitsource.Request) (gitsource.Checkout, error)
}

// Compiler turns files into objects, within limits. What is wrong with the files, or costs more
// than the limits, is in the result's diagnostics; an error means that it could not be tried.
type Compiler interface {
	Compile(context.Context, fs.FS, compile.Options) (compile.Result, error)
}

// +kubebuilder:rbac:groups=corral.dev,resources=poolsources,verbs=get;list;watch
// +kubebuilder:rbac:groups=corral.dev,resources=poolsources/status,verbs=patch
// +kubebuilder:rbac:groups=corral.dev,resources=runnerpools;githubconnections;runnerpolicies,verbs=get;list;create;patch;delete
// +kubebuilder:rbac:groups=corral.dev,resources=scalesets;runners,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles PoolSources.
type Reconciler struct {
	kube.Reporter
	// Live reads without a cache: Secrets by name, and who holds which object.
	Live client.Reader
	// Impersonate returns a client that acts as a service account.
	Impersonate func(account types.NamespacedName) (client.Client, error)
	// DefaultServiceAccount in a source's namespace acts for sources that name none; "" for the controller.
	DefaultServiceAccount string
	Fetcher               Fetcher
	Artifacts             Artifacts
	Compiler              Compiler
	// CrossNamespace allows sources to name sources and artifacts of other namespaces.
	CrossNamespace bool

	flux     *fluxWatch
	jitter   func(time.Duration) time.Duration
	hosts    *hosts
	compiled *shelf
	claims   sync.Map // of namespace to *sync.Mutex

	isTold    bool     // GitHub is told of revisions
	diagnoses sync.Map // of types.NamespacedName to diagnosis, where somebody tells of it
}

// run is one reconciliation of one source.
type run struct {
	*Reconciler
	source  *v1alpha1.PoolSource
	attempt *kube.Attempt
	done    kube.Done
	over    bool                 // the remaining steps are left out
	waits   string               // what could not be pruned yet, for the message
	account types.NamespacedName // that acts for the source; none for the controller
	actor   client.Client        // applies, binds and deletes as who acts
	release func()               // of the claim on the namespace

	requested bool // by annotation, and not handled yet

	applied map[id]bool // what the inventory held when the run began
	holds   map[id]bool // what the source holds now

	request  gitsource.Request // if the source is a repository
	artifact *meta.Artifact    // if it is one of Flux
	revision string
	objects  []compile.Object
	plan     plan
}

// Reconcile brings one source up to date:
//
//  1. check: can this source be named in a label?
//     identify: as whom are objects applied and pruned?            (identity.go)
//  2. bind: what it holds follows spec.deletionPolicy              (hold.go)
//  3. suspend: stop here when spec.suspend is set
//  4. refer: may it name what it names?                            (depends.go)
//  5. resolve: which revision does the reference stand for?        (build.go, flux.go)
//  6. depend: is what it depends on ready?                         (depends.go)
//  7. build: fetch and compile it, unless that is known            (build.go)
//  8. decide: what to apply, refuse and remove                     (plan.go)
//  9. apply: server-side apply; pools once policies are in force   (apply.go)
//  10. prune: delete what left the source, pools first             (apply.go)
//
// There is no finalizer: what becomes of the objects when the source is deleted is said by their
// owner references, and of connections by an annotation, as they stay while runners need them (clear in hold.go).
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	source := &v1alpha1.PoolSource{}
	if err := r.Client.Get(ctx, req.NamespacedName, source); err != nil || !source.DeletionTimestamp.IsZero() {
		r.diagnoses.Delete(req.NamespacedName)
		uncount(req.NamespacedName)
		if apierrors.IsNotFound(err) {
			return r.clear(ctx, req.NamespacedName)
		}
		return ctrl.Result{}, err
	}
	if err := kube.Unreadable(source); err != nil {
		return r.Begin(source).Finish(ctx, kube.Done{}, err)
	}
	x := r.begin(source)
	defer func() { x.release() }()
	var err error
	for _, step := range []func(context.Context) error{
		x.check, x.identify, x.bind, x.suspend, x.refer, x.resolve, x.depend, x.build, x.decide, x.apply, x.prune, x.succeed,
	} {
		if err = step(ctx); err != nil || x.over {
			break
		}
	}
	if errors.Is(err, errBusy) {
		return ctrl.Result{RequeueAfter: r.jitter(busyRetry)}, nil
	}
	x.writeInventory()
	x.count(err)
	x.keepDiagnostics(err)
	x.attempt.About(x.outcome())
	return x.attempt.Finish(ctx, x.done, err)
}

func (r *Reconciler) begin(source *v1alpha1.PoolSource) *run {
	x := &run{
		Reconciler: r,
		source:     source,
		attempt:    r.Begin(source),
		done:       kube.Done{After: r.jitter(source.Spec.Interval.Duration)},
		release:    func() {},
		applied:    inventoryOf(source),
	}
	if request, ok := meta.ReconcileAnnotationValue(source.Annotations); ok && !source.Spec.Suspend {
		x.requested = request != source.Status.LastHandledReconcileAt
		source.Status.SetLastHandledReconcileRequest(request)
	}
	return x
}

func (x *run) check(context.Context) error {
	if errs := validation.IsValidLabelValue(x.source.Name); len(errs) > 0 {
		return kube.Stall(v1alpha1.InvalidSpecReason, "the source's name is put on objects as a label: %s", errs[0])
	}
	ref := x.source.Spec.SourceRef
	if x.source.Spec.Git == nil && (ref == nil || fluxKinds[ref.Kind] == nil) {
		return kube.Stall(v1alpha1.InvalidSpecReason, "spec.git or spec.sourceRef must be set, with a kind that is known")
	}
	return nil
}

func (x *run) suspend(context.Context) error {
	if x.source.Spec.Suspend {
		x.over = true
		x.done = kube.Done{Unready: v1alpha1.SuspendedReason, Message: "Suspended: what was applied keeps running as it is"}
	}
	return nil
}

func (x *run) succeed(context.Context) error {
	x.source.Status.LastAppliedRevision = x.revision
	x.done.Message = fmt.Sprintf("Applied revision %s: %s%s", x.revision, x.plan.summary(), x.waits)
	return nil
}

// minRetry is the least time to the next attempt, as for spec.interval: less is no back-off, and 0 no attempt at all.
const minRetry = time.Second

// retryAfter is the time to the next attempt after one that failed.
func (x *run) retryAfter() time.Duration {
	return x.jitter(max(minRetry, x.source.Spec.GetRetryInterval()))
}
