// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package runners takes each Runner through its life: register, start a pod, watch
// it, and, when it is over, deregister first and clean up second.
package runners

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/connections"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/poolstatus"
)

// Clients finds the GitHub client of a connection by NAMESPACE/NAME.
type Clients interface {
	Get(key string) (*scaleset.Client, bool)
}

// +kubebuilder:rbac:groups=corral.dev,resources=runners,verbs=get;list;watch;delete;patch
// +kubebuilder:rbac:groups=corral.dev,resources=runners/status,verbs=patch
// +kubebuilder:rbac:groups=corral.dev,resources=runners/finalizers,verbs=update
// +kubebuilder:rbac:groups=corral.dev,resources=runnerpools;githubconnections;poolsources,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;delete;patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;create
// +kubebuilder:rbac:groups=apps,resources=controllerrevisions,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles Runners.
type Reconciler struct {
	kube.Reporter
	// Live reads without a cache: Secrets by name, and what the cache may not show yet.
	Live    client.Reader
	Clients Clients
	// Sets say which scale sets pools hold.
	Sets Sets
	// Cluster identifies this cluster in the labels of runners without a scale set.
	Cluster string
	// REST finds the clients of runners without a scale set.
	REST RESTClients
	// Access says which connections of other namespaces may be used; nil for none.
	Access *connections.Access
	Notes  *Notes
	// Policies are asked before a pod is created.
	Policies Policies
	Now      func() time.Time
}

// Sets say whether GitHub gave a pool, by its UID, the session of a scale set of a connection. What an object says of that may be forged.
type Sets interface {
	Holds(pool, connection types.NamespacedName, uid types.UID, setID int64) bool
}

// Policies say whether the pods of a revision of a pool's template may run.
type Policies interface {
	Permit(ctx context.Context, pool *v1alpha1.RunnerPool, revision string, template []byte) (policy.Template, error)
}

// run is one reconciliation of one runner.
type run struct {
	*Reconciler
	runner  *v1alpha1.Runner
	note    *note
	pod     *corev1.Pod // nil if there is none
	verdict poolstatus.Verdict
	trouble error               // why it could not be started yet; its deadline runs on
	taken   *poolstatus.Verdict // set if its name is another's, here or on GitHub
	// elsewhere is true when the connection leads to another place than the runner registered with.
	elsewhere bool
	// denied is true when the connection is of another namespace that doesn't allow it.
	denied bool
	// unproven is true when nothing shows that what is registered on GitHub is its own.
	unproven bool
	gone     bool // let go of: there is no status to write any more
}

// Reconcile brings one runner a step further:
//
//  1. terminate: somebody ends it with an annotation, job or not (terminate.go)
//  2. start: JIT configuration into a Secret (register.go), then the pod (pod.go)
//  3. verify: the registration, if GitHub's counts contradict ours (register.go)
//  4. observe: state, its reason and its cause
//  5. account: whether one that ended in peace had a job, if nothing tells of it (rest.go)
//  6. end: delete the Runner when it is over; its job's completion does so too (recorder.go)
//
// A deleted one is deregistered, its pod is deleted, and it is let go (finalize.go).
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	runner := &v1alpha1.Runner{}
	if err := r.Client.Get(ctx, req.NamespacedName, runner); err != nil {
		return ctrl.Result{}, r.sweep(ctx, req, err)
	}
	if err := kube.Unreadable(runner); err != nil && runner.DeletionTimestamp.IsZero() {
		return r.Begin(runner).Finish(ctx, kube.Done{}, err)
	}
	pod, err := r.podOf(ctx, runner)
	if err != nil {
		return ctrl.Result{}, err
	}
	ctx = inFlow(ctx, runner)
	x := &run{Reconciler: r, runner: runner, pod: pod, note: r.Notes.of(req.NamespacedName, runner.UID)}
	attempt := r.Begin(runner)
	x.recollect()
	steps := []func(context.Context) error{x.terminate, x.start, x.verify, x.observe, x.account, x.end}
	if !runner.DeletionTimestamp.IsZero() {
		if !controllerutil.ContainsFinalizer(runner, v1alpha1.RunnerFinalizer) || x.note.released {
			return ctrl.Result{}, nil
		}
		steps = []func(context.Context) error{x.finalize}
	}
	for _, step := range steps {
		if err = step(ctx); err != nil {
			break
		}
	}
	if x.gone {
		r.Gathered.Forget(runner.UID)
		return ctrl.Result{}, nil
	}
	return attempt.Finish(ctx, x.done(), err)
}

// recollect adds to what the cache shows what this process knows already.
func (x *run) recollect() {
	if x.pod != nil || x.note.podMade || !x.runner.DeletionTimestamp.IsZero() {
		x.Notes.begun(x.note)
	}
	if x.pod != nil {
		x.note.podMade = false
	}
	if x.runner.Status.StartedAt == nil {
		x.runner.Status.StartedAt = timeOrNil(x.note.started)
	}
}

// start registers the runner and creates its pod. What goes wrong is told at the end:
// a runner that can't be started must still be given up at its deadline.
func (x *run) start(ctx context.Context) error {
	if x.trouble = x.register(ctx); x.trouble == nil && x.taken == nil {
		x.trouble = x.reconcilePod(ctx)
	}
	if x.trouble != nil {
		x.Notes.begun(x.note) // it waits for more than its turn
	}
	return nil
}

// observe writes down the runner's state.
func (x *run) observe(ctx context.Context) error {
	deadline, err := x.startupDeadline(ctx)
	if err != nil {
		return err
	}
	o := poolstatus.Observe(x.runner, x.pod, deadline, x.Now())
	if x.trouble != nil && o.StartedAt.IsZero() {
		o.EndReason, o.Cause = x.trouble.Error(), causeOf(x.trouble)
	}
	x.note.started = o.StartedAt
	if !o.EndedAt.IsZero() && x.note.ended.IsZero() {
		x.note.ended = x.Now()
	}
	o.Noticed = x.note.ended
	x.verdict = poolstatus.Judge(o, x.Now())
	x.overrule()
	s := &x.runner.Status
	s.StartedAt, s.EndedAt, s.EndedClean = timeOrNil(o.StartedAt), timeOrNil(o.EndedAt), o.EndedClean
	s.State, s.Reason, s.Cause, s.Job = x.verdict.State, x.verdict.Reason, x.verdict.Cause, o.Job
	if s.Job != nil {
		x.Notes.worked(x.poolKey(), x.runner.Spec.Revision, cmp.Or(s.Job.StartedAt, s.StartedAt, &x.runner.CreationTimestamp).Time)
	}
	return nil
}

// overrule puts in place of what the pod tells what is known better: that the name is
// taken, that the job is over, and why a runner that is being ended had failed.
func (x *run) overrule() {
	failed := x.Notes.failure(client.ObjectKeyFromObject(x.runner), x.runner.UID)
	works := x.verdict.State == v1alpha1.RunnerBusy || x.verdict.State == v1alpha1.RunnerIdle
	switch {
	case x.taken != nil:
		x.verdict = *x.taken
	case works && x.jobOver():
		x.verdict = poolstatus.Verdict{State: v1alpha1.RunnerFinished, Since: x.Now(), Reason: "job over, the container still runs"}
	case failed != nil && x.verdict.State != v1alpha1.RunnerBusy && !x.runner.DeletionTimestamp.IsZero():
		x.verdict = *failed
	}
}

// nameTaken fails a runner whose name is another's: the pool goes on with the next.
func (x *run) nameTaken(cause v1alpha1.RunnerCause, format string, args ...any) {
	x.taken = &poolstatus.Verdict{State: v1alpha1.RunnerFailed, Since: x.Now(), Cause: cause, Reason: fmt.Sprintf(format, args...)}
}

// causeOf names what keeps a runner from being registered or from getting its pod.
func causeOf(trouble error) v1alpha1.RunnerCause {
	switch kube.ReasonOf(trouble, v1alpha1.GitHubUnavailableReason) {
	case v1alpha1.TemplateInvalidReason, v1alpha1.PolicyDeniedReason:
		return v1alpha1.CauseRefused
	case v1alpha1.QuotaExceededReason:
		return v1alpha1.CauseQuota
	}
	return v1alpha1.CauseGitHub
}

// end deletes a runner that is over, which leads to finalize.
func (x *run) end(ctx context.Context) error {
	switch {
	case x.verdict.State == v1alpha1.RunnerFailed:
		x.fail()
	case x.trouble != nil:
		return x.trouble
	case x.verdict.State == v1alpha1.RunnerPending:
		return kube.Progress(max(time.Millisecond, x.verdict.Until.Sub(x.Now())), "%s: %s", x.verdict.State, x.verdict.Reason)
	case x.verdict.State != v1alpha1.RunnerFinished || x.verdict.Settling:
		return nil
	}
	return End(ctx, x.Client, x.runner)
}

// fail tells the pool, and whoever looks for the runner later, once, why it failed.
// That of a runner with a job is the job's matter.
func (x *run) fail() {
	key := client.ObjectKeyFromObject(x.runner)
	if x.Notes.failure(key, x.runner.UID) != nil {
		return
	}
	x.Notes.Condemn(key, x.runner.UID, x.verdict)
	if x.runner.Status.Job != nil {
		return
	}
	x.Event(x.runner, corev1.EventTypeWarning, string(v1alpha1.RunnerFailed), fmt.Sprintf("%s: %s", x.verdict.Cause, x.verdict.Reason))
	x.Notes.fail(x.poolKey(), Failure{
		Runner: x.runner.Name, Revision: x.runner.Spec.Revision, Cause: x.verdict.Cause, Message: x.verdict.Reason, Began: x.runner.CreationTimestamp.Time, At: x.Now(),
		Clean: x.runner.Status.EndedClean && !x.note.jobless,
	})
}

func (x *run) poolKey() types.NamespacedName {
	return types.NamespacedName{Namespace: x.runner.Namespace, Name: x.runner.Spec.PoolRef.Name}
}

// End begins the end of a runner; one that is gone is fine.
func End(ctx context.Context, c client.Client, r *v1alpha1.Runner) error {
	uid := r.UID
	err := c.Delete(ctx, r.DeepCopy(), client.Preconditions{UID: &uid})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("ending runner %s: %w", r.Name, err)
	}
	return nil
}

// done tells when to look again if nothing happens.
func (x *run) done() kube.Done {
	d := kube.Done{Message: string(x.verdict.State) + ": " + x.verdict.Reason}
	if x.verdict.State == v1alpha1.RunnerFinished || x.verdict.State == v1alpha1.RunnerFailed {
		d.Unready = string(x.verdict.State)
	}
	if !x.verdict.Until.IsZero() {
		d.After = max(time.Millisecond, x.verdict.Until.Sub(x.Now()))
	}
	return d
}

func (x *run) startupDeadline(ctx context.Context) (time.Duration, error) {
	pool, err := x.pool(ctx)
	if err != nil || pool == nil {
		return v1alpha1.DefaultStartupDeadline, err
	}
	return pool.Spec.Deadlines.GetStartup(), nil
}

// pool reads the runner's pool; nil if it is gone, or has no such runner.
func (x *run) pool(ctx context.Context) (*v1alpha1.RunnerPool, error) {
	pool := &v1alpha1.RunnerPool{}
	key := types.NamespacedName{Namespace: x.runner.Namespace, Name: x.runner.Spec.PoolRef.Name}
	if err := x.Client.Get(ctx, key, pool); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("reading the pool: %w", err)
	}
	if !metav1.IsControlledBy(x.runner, pool) {
		return nil, nil
	}
	return pool, nil
}

// podOf finds the runner's pod; nil if there is none, or another of its name.
func (r *Reconciler) podOf(ctx context.Context, runner *v1alpha1.Runner) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	if err := r.Client.Get(ctx, client.ObjectKeyFromObject(runner), pod); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil, nil
		}
		return nil, fmt.Errorf("reading the pod: %w", err)
	}
	if !podspec.BelongsTo(pod, runner) {
		return nil, nil
	}
	return pod, nil
}

// sweep deletes an ended pod whose Runner is gone: somebody took its finalizer away.
// One that runs is left to finish its job.
func (r *Reconciler) sweep(ctx context.Context, req ctrl.Request, reading error) error {
	if !apierrors.IsNotFound(reading) {
		return reading
	}
	pod := &corev1.Pod{}
	if err := r.Client.Get(ctx, req.NamespacedName, pod); err != nil {
		r.Notes.forget(req.NamespacedName)
		return client.IgnoreNotFound(err)
	}
	if r.Notes.isEnding(req.NamespacedName, pod.UID) {
		return nil
	}
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if !ended || pod.Annotations[v1alpha1.RunnerUIDAnnotation] == "" {
		return nil
	}
	return client.IgnoreNotFound(r.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}))
}

func (x *run) connectionKey() types.NamespacedName {
	return x.runner.Spec.ConnectionRef.From(x.runner.Namespace)
}

func timeOrNil(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t}
}
