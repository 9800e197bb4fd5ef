// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package runners manages the life of each Runner: it registers the runner, starts and watches a pod and, when the runner
// is over, deregisters it first and cleans up second.
package runners

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/connections"
	"github.com/corral-dev/corral/internal/catalog"
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
// +kubebuilder:rbac:groups="",resources=namespaces;nodes,verbs=get
// +kubebuilder:rbac:groups=apps,resources=controllerrevisions,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles Runners.
type Reconciler struct {
	kube.Reporter
	// Live reads without a cache: Secrets by name, and objects that the cache may not show yet.
	Live    client.Reader
	Clients Clients
	// Sets reports which scale sets pools hold.
	Sets Sets
	// Cluster identifies this cluster in the labels of runners without a scale set.
	Cluster string
	// REST finds the clients of runners without a scale set.
	REST RESTClients
	// Access reports which connections of other namespaces may be used. If nil, none may be used.
	Access *connections.Access
	Memory *Memory
	// Policies decides whether a pod may be created.
	Policies Policies
	// Impersonate returns clients that act as service accounts, for deleting what container hooks leave behind.
	Impersonate Impersonate
	// Watches restarts the watch of pods when it is silent.
	Watches Watches
	Now     func() time.Time

	namespaces sync.Map           // name → UID, and when it was read
	reads      singleflight.Group // of namespaces
}

// New returns a Reconciler. live reads without a cache; cluster identifies this cluster in the labels of runners without a
// scale set.
func New(report kube.Reporter, live client.Reader, clients Clients, gh RESTClients, sets Sets, access *connections.Access, memory *Memory, policies Policies, as Impersonate, watches Watches, cluster string, now func() time.Time) *Reconciler {
	return &Reconciler{Reporter: report, Live: live, Clients: clients, REST: gh, Sets: sets, Access: access, Memory: memory, Policies: policies, Impersonate: as, Watches: watches, Cluster: cluster, Now: now}
}

// Watches restarts watches that miss events. Restart restarts the watches of a resource, unless that was done recently, and
// reports whether it did. Controllers call Ghost with the UID of an object that the cache shows and the API server does not
// have.
type Watches interface {
	Restart(resource string) bool
	Ghost(uid types.UID) bool
}

// Sets reports whether GitHub gave a pool, identified by its UID, the session of a scale set on a connection. The ID of a
// scale set in an object is no proof, because users can forge it.
type Sets interface {
	Holds(pool, connection types.NamespacedName, uid types.UID, setID int64) bool
	HoldsAny(pool types.NamespacedName) bool
}

// Policies decides whether the pods of a pool's template revision may run.
type Policies interface {
	Permit(ctx context.Context, pool *v1alpha1.RunnerPool, revision string, template []byte, n podspec.Network) (policy.Template, error)
}

// pass is one reconciliation of a runner. Its fields are read once, at the beginning.
type pass struct {
	*Reconciler
	runner *v1alpha1.Runner
	pool   *v1alpha1.RunnerPool // nil if it is gone or does not own the runner
	pod    *corev1.Pod          // nil if there is none
	memory *runnerMemory
}

// Reconcile advances one runner:
//
//  1. terminate: delete it, and its job with it, if a user annotated it (terminate.go)
//  2. start: store the JIT configuration in a Secret (register.go), then create the pod (pod.go)
//  3. verify: check the registration if GitHub's counts contradict Corral's (register.go)
//  4. observe, decide: determine its state, the reason and the cause
//  5. findJob: check whether a runner that ended without an error had an unreported job (rest.go)
//  6. project: set the status, once
//  7. end: delete the Runner when it is over; the Recorder also does so when the job completes (recorder.go)
//
// A deleted Runner is deregistered, its pod is deleted, and then its finalizer is removed (finalize.go).
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	runner := &v1alpha1.Runner{}
	if err := r.Client.Get(ctx, req.NamespacedName, runner); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	} else if err != nil || runner.IsReleased() {
		return ctrl.Result{}, r.sweep(ctx, req)
	}
	attempt, memory := r.Begin(runner), r.Memory.of(req.NamespacedName, runner.UID)
	deleted := !runner.DeletionTimestamp.IsZero()
	if err := kube.Unreadable(runner); err != nil && !deleted {
		return attempt.Finish(ctx, kube.Done{}, err)
	}
	if deleted && isRecent(memory.end.released) {
		return ctrl.Result{RequeueAfter: podShown}, nil
	}
	p, err := r.read(ctx, runner, memory)
	if err != nil {
		return attempt.Finish(ctx, kube.Done{}, err)
	}
	ctx = inFlow(ctx, runner)
	if !deleted {
		done, err := p.run(ctx)
		done.Elsewhere = isOfAnother(err)
		return attempt.Finish(ctx, done, err)
	}
	if err = p.finalize(ctx); err == nil {
		err = p.letGo(ctx, attempt)
	}
	if err == nil {
		r.Gathered.Forget(runner.UID)
		return ctrl.Result{}, nil
	}
	return attempt.Finish(ctx, kube.Done{Elsewhere: isOfAnother(err)}, err)
}

// read reads the objects that a pass needs, and adds what this process already knows to what the cache shows.
func (r *Reconciler) read(ctx context.Context, runner *v1alpha1.Runner, memory *runnerMemory) (pass, error) {
	pod, err := r.podOf(ctx, runner)
	if err != nil {
		return pass{}, err
	}
	pool, err := r.poolOf(ctx, runner)
	if err != nil {
		return pass{}, err
	}
	if pod != nil || !memory.pod.created.IsZero() || !runner.DeletionTimestamp.IsZero() {
		r.Memory.endStart(memory)
	}
	if pod != nil {
		memory.pod.created, memory.claim.seen = time.Time{}, true
		memory.claim.name = cmp.Or(memory.claim.name, claimOf(pod, runner.Spec.PoolRef.Name))
		r.Memory.claims.podShown(client.ObjectKey{Namespace: pod.Namespace, Name: memory.claim.name}, runner.UID)
	}
	if runner.Status.StartedAt == nil {
		runner.Status.StartedAt = timeOrNil(memory.container.started)
	}
	if runner.Persists() && runner.Status.RunnerID == 0 {
		runner.Status.RunnerID = r.Memory.registration(client.ObjectKeyFromObject(runner), runner.UID)
	}
	return pass{Reconciler: r, runner: runner, pool: pool, pod: pod, memory: memory}, nil
}

// run advances a runner that is not being deleted. If the start fails, run continues and returns that error at the end,
// because the runner must still fail at its deadline.
func (p pass) run(ctx context.Context) (kube.Done, error) {
	if reason := p.terminationReason(); reason != "" {
		return kube.Done{}, p.terminate(ctx, reason)
	}
	startErr := p.start(ctx)
	p.runner.Status.Outage = connections.OutageOf(startErr)
	p.runner.Status.RunnerID = p.registrationID()
	lookErr := p.verify(ctx)
	o := p.observe(startErr)
	state := decide(o, p.Now())
	job, err := p.findJob(ctx, o, state)
	if job != nil {
		o.Job = job
		o.jobOver = o.jobOver || job.CompletedAt != nil
		state = decide(o, p.Now())
	} else if missed, isUnsettled := p.unsettled(o, state); isUnsettled {
		state = missed
	}
	o.Exit = p.withTaints(ctx, o, state)
	p.project(o, state)
	if err == nil {
		err = p.free(ctx, o)
	}
	if err == nil {
		err = p.end(ctx, state, startErr)
	}
	if err == nil {
		err = lookErr
	}
	return p.done(state), err
}

// start registers the runner and creates its pod.
func (p pass) start(ctx context.Context) error {
	err := p.register(ctx)
	if err == nil {
		err = p.createPod(ctx)
	}
	if err != nil {
		p.Memory.endStart(p.memory) // it does not wait only for its pod any more
	}
	return err
}

// observation is everything known about a runner when its state is decided.
type observation struct {
	poolstatus.Observation
	// startErr is why the runner could not be started yet.
	startErr error
	// jobOver is true once GitHub reported that the runner's job completed. result is the job's result, empty if unknown.
	jobOver bool
	result  string
	// failed is why the runner is being ended; nil if it did not fail.
	failed *poolstatus.Assessment
}

// observe combines the runner, its pod and this process's memory.
func (p pass) observe(startErr error) observation {
	deadline := v1alpha1.DefaultStartupDeadline
	if p.pool != nil {
		deadline = p.pool.Spec.Deadlines.GetStartup()
	}
	seen := *p.runner
	seen.Status.Job, _ = p.Memory.LastJob(p.runner)
	o := observation{
		Observation: poolstatus.Observe(&seen, p.lastPod(), deadline, p.Now()),
		startErr:    startErr, jobOver: p.jobOver(), result: p.completion().result,
		failed: p.Memory.failure(client.ObjectKeyFromObject(p.runner), p.runner.UID),
	}
	isKnown := o.EndReason != "" && kube.IsStarting(startErr) // the status contains the reason from before this process started
	if startErr != nil && o.StartedAt.IsZero() && !isKnown {
		o.EndReason, o.Cause = startErr.Error(), causeOf(startErr)
	}
	if c := p.completion(); !c.at.IsZero() && !o.EndedAt.IsZero() && o.Job != nil && !o.Job.IsOver() { // so that the Runner's status shows it
		job := *o.Job
		job.CompletedAt, job.Result = &metav1.Time{Time: c.at}, c.result
		o.Job = &job
	}
	p.memory.container.follow(&o.Observation, p.Now())
	return o
}

// follow remembers the observed state of the container. For changes that this process saw happen, it uses the time at which
// it noticed them, because the clock of the node may be wrong.
func (c *containerMemory) follow(o *poolstatus.Observation, now time.Time) {
	if !o.Restarting.Equal(c.down) {
		c.down, c.turned = o.Restarting, now
	}
	if !c.down.IsZero() {
		o.Restarting = c.turned
	}
	hasRun, isOver := !o.StartedAt.IsZero(), !o.EndedAt.IsZero()
	if hasRun {
		o.StartedAt = c.start(o.StartedAt, now)
	}
	if isOver && c.ended.IsZero() {
		c.ended = now
	}
	if o.Noticed = c.ended; isOver && c.ran {
		o.EndedAt = c.ended
	}
	c.awaited, c.ran = c.awaited || o.HasPod && !hasRun, c.ran || hasRun && !isOver
}

// start returns when the container started, or last restarted. byPod is the pod's start time.
func (c *containerMemory) start(byPod, now time.Time) time.Time {
	if c.started.IsZero() {
		c.started = byPod
		if c.awaited {
			c.started = now
		}
	}
	if c.turned.After(c.started) {
		c.started = c.turned
	}
	return c.started
}

// lastPod returns the runner's pod or, if that is gone, its last state; nil if it never existed or its end was missed.
func (p pass) lastPod() *corev1.Pod {
	if last := p.Memory.lastPod(p.memory); p.pod == nil && last != nil {
		return poolstatus.Gone(last, p.Now())
	}
	return p.pod
}

// decide returns a runner's state, which follows from its pod unless one of three facts is known: the runner can never
// start, its job is over, or it is being deleted because it failed.
func decide(o observation, now time.Time) poolstatus.Assessment {
	state := poolstatus.Assess(o.Observation, now)
	works := state.State == v1alpha1.RunnerBusy || state.State == v1alpha1.RunnerIdle
	switch conflict := new(conflictError); {
	case errors.As(o.startErr, &conflict):
		return poolstatus.Assessment{State: v1alpha1.RunnerFailed, Since: now, Cause: conflict.cause, Reason: conflict.message}
	case works && o.jobOver:
		return poolstatus.Assessment{State: v1alpha1.RunnerFinished, Since: now, Reason: poolstatus.OutlivesJob(o.result)}
	case o.failed != nil && state.State != v1alpha1.RunnerBusy && o.Terminating && !o.Job.IsOver():
		return *o.failed
	}
	return state
}

// project sets the status, and records that the runner got a job, if it did.
func (p pass) project(o observation, state poolstatus.Assessment) {
	s := &p.runner.Status
	s.StartedAt, s.EndedAt, s.EndedClean = timeOrNil(o.StartedAt), timeOrNil(o.EndedAt), o.EndedClean
	s.State, s.Reason, s.Cause, s.Exit = state.State, state.Reason, state.Cause, o.Exit
	if !p.runner.Persists() { // the Recorder counts a persistent runner's jobs
		s.Job = o.Job
	}
	if o.Job != nil {
		p.Memory.recordWorked(p.poolKey(), p.runner.Spec.Revision, Worked{Runner: p.runner.Name, Began: cmp.Or(o.Job.StartedAt, s.StartedAt, &p.runner.CreationTimestamp).Time})
	}
}

// conflictError fails a runner that can never start, because its name is already taken, in the cluster or on GitHub, or
// because its pod was deleted before it ran. The pool replaces the runner with a runner of another number.
type conflictError struct {
	cause   v1alpha1.RunnerCause
	message string
}

func (e *conflictError) Error() string { return e.message }

// causeOf returns the cause that prevents a runner from registering or from getting its pod.
func causeOf(startErr error) v1alpha1.RunnerCause {
	if kube.IsProgress(startErr) || kube.Has(startErr, catalog.RunnerForged) {
		return "" // nothing is wrong, or the fault is with the user who created the Runner
	}
	switch kube.ReasonOf(startErr, "") {
	case "": // an error answer from GitHub, or a failed request to the API server, which has no cause of its own
		if !errors.As(startErr, new(answerError)) {
			return ""
		}
	case v1alpha1.TemplateInvalidReason, v1alpha1.ServiceAccountMissingReason, v1alpha1.PolicyDeniedReason, v1alpha1.SecretRefusedReason:
		return v1alpha1.CauseRefused
	case v1alpha1.QuotaExceededReason:
		return v1alpha1.CauseQuota
	case v1alpha1.CacheUnavailableReason:
		return v1alpha1.CauseCache
	}
	return v1alpha1.CauseGitHub
}

// isOfAnother reports whether another object reports this outcome: the pool if its runners cannot start, or the connection
// if runners cannot be deregistered.
func isOfAnother(err error) bool {
	ofPool := []string{v1alpha1.RunnerGroupNotFoundReason, v1alpha1.QuotaExceededReason, v1alpha1.CacheUnavailableReason, v1alpha1.DeletionRefusedReason, v1alpha1.ProgressingReason}
	reason := kube.ReasonOf(err, "")
	return connections.ReportsReason(reason) || slices.Contains(ofPool, reason)
}

// end deletes the Runner if it is over, and finalize then cleans up. Otherwise it returns the outcome of a runner that is
// starting, or nil.
func (p pass) end(ctx context.Context, state poolstatus.Assessment, startErr error) error {
	switch {
	case state.State == v1alpha1.RunnerFailed:
		p.reportFailure(state, startErr)
	case state.State == v1alpha1.RunnerFinished && !state.Settling: // it is over, even if a start error remains
	case startErr != nil:
		return startErr
	case state.Blocked, state.State == v1alpha1.RunnerPending && !p.memory.pod.created.IsZero(): // the cache should show the pod by then
		return kube.Progress(podShown, catalog.RunnerDoubted.With(state.State, state.Reason))
	case state.State == v1alpha1.RunnerPending:
		return kube.Progress(max(time.Millisecond, state.Until.Sub(p.Now())), catalog.RunnerDoubted.With(state.State, state.Reason))
	default:
		return nil
	}
	return p.Memory.end(ctx, p.Client, p.runner, fmt.Sprintf("%s: %s", state.State, state.Reason))
}

// reportFailure emits an event and records the failure for the pool, once.
func (p pass) reportFailure(state poolstatus.Assessment, startErr error) {
	key := client.ObjectKeyFromObject(p.runner)
	if p.Memory.failure(key, p.runner.UID) != nil {
		return
	}
	message := strings.TrimPrefix(fmt.Sprintf("%s: %s", state.Cause, state.Reason), ": ") + p.runner.Status.Exit.After(state.Reason)
	kind := corev1.EventTypeNormal // another runner replaces it, and the pool warns if that fails too
	if p.runner.CurrentJob() != nil {
		kind = corev1.EventTypeWarning
	}
	p.Event(p.runner, kind, string(v1alpha1.RunnerFailed), message)
	p.Memory.recordFailure(p.poolKey(), Failure{
		Runner: p.runner.Name, Revision: p.runner.Spec.Revision, Cause: state.Cause, HadJob: p.runner.CurrentJob() != nil, Message: state.Reason,
		Node: nodeOf(p.pod, p.runner.Status.Exit), Exit: p.runner.Status.Exit, Began: p.runner.CreationTimestamp.Time, At: p.Now(),
		Clean: p.runner.Status.EndedClean && !p.memory.hadNoJob, NameTaken: errors.As(startErr, new(*conflictError)) && !p.memory.hadPod(),
	})
	p.Memory.MarkFailed(key, p.runner.UID, state) // last, because the pool relies on the failure being recorded by then
}

// nodeOf returns the node of a pod. For a deleted pod, the exit of its container has it.
func nodeOf(pod *corev1.Pod, exit *v1alpha1.RunnerExit) string {
	switch {
	case pod != nil:
		return pod.Spec.NodeName
	case exit != nil:
		return exit.Node
	}
	return ""
}

func (p pass) poolKey() types.NamespacedName {
	return types.NamespacedName{Namespace: p.runner.Namespace, Name: p.runner.Spec.PoolRef.Name}
}

// EndRetry is the minimum time between two attempts to delete a Runner if the API server refuses it.
const EndRetry = 15 * time.Second

// End deletes a Runner and logs why. It reports whether the Runner is now being deleted; false if it was already gone.
func End(ctx context.Context, c client.Client, r *v1alpha1.Runner, why string) (isThere bool, err error) {
	var only client.Preconditions
	if r.UID != "" { // empty for a new Runner that the cache does not show yet
		only.UID = new(r.UID)
	}
	err = c.Delete(ctx, r.DeepCopy(), only)
	if kube.IsRefused(err) {
		return false, kube.Wait(wait.Jitter(EndRetry, 1), catalog.EndRefused.With(r.Name).Wrap(err))
	}
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("ending runner %s: %w", r.Name, err)
	}
	if err == nil && r.DeletionTimestamp.IsZero() {
		kube.LogDeleted(ctx, c, r, r.Spec.Revision, why)
	}
	return err == nil, nil
}

// done returns the runner's state as a message, and the delay until the next check if no event occurs.
func (p pass) done(state poolstatus.Assessment) kube.Done {
	d := kube.Done{Message: string(state.State) + ": " + state.Reason}
	if state.State == v1alpha1.RunnerFinished || state.State == v1alpha1.RunnerFailed {
		d.Unready, d.After = []catalog.Cause{causeOfEnd(state.State, state.Reason)}, podShown // the cache should show its deletion by then
	}
	if !state.Until.IsZero() {
		d.After = max(time.Millisecond, state.Until.Sub(p.Now()))
	}
	return d
}

// causeOfEnd returns the cause for a runner that is Finished or Failed.
func causeOfEnd(state v1alpha1.RunnerState, reason string) catalog.Cause {
	return catalog.Of("Runner" + string(state)).With(reason)
}

// poolOf reads the runner's pool; nil if it is gone or does not own the runner.
func (r *Reconciler) poolOf(ctx context.Context, runner *v1alpha1.Runner) (*v1alpha1.RunnerPool, error) {
	pool := &v1alpha1.RunnerPool{}
	key := client.ObjectKey{Namespace: runner.Namespace, Name: runner.Spec.PoolRef.Name}
	if err := r.Client.Get(ctx, key, pool); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the pool: %w", err)
	} else if err != nil || !metav1.IsControlledBy(runner, pool) {
		return nil, nil
	}
	return pool, nil
}

// podOf returns the runner's pod; nil if there is none, or if the pod with its name belongs to another runner.
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

// sweep deletes an ended pod whose Runner is gone, for example because a user removed the finalizer. It keeps a pod that is
// running, because the pod may have a job, and logs a warning.
func (r *Reconciler) sweep(ctx context.Context, req ctrl.Request) error {
	pod := &corev1.Pod{}
	if err := r.Client.Get(ctx, req.NamespacedName, pod); err != nil {
		r.Memory.forget(req.NamespacedName, !apierrors.IsNotFound(err))
		return client.IgnoreNotFound(err)
	}
	if r.Memory.isPodDeleted(req.NamespacedName, pod.UID) {
		return nil
	}
	if pod.Annotations[v1alpha1.RunnerUIDAnnotation] == "" || !pod.DeletionTimestamp.IsZero() {
		return nil
	}
	if KeptUntil(pod, r.Now()).After(r.Now()) {
		return nil // its pool deletes it
	}
	if !isOver(pod) {
		kube.Warn(ctx, "The Runner of a pod is gone; the pod is left as it may have a job", "pod", pod.Name, "job", pod.Labels[v1alpha1.JobIDLabel])
		return nil
	}
	if err := r.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}); err != nil {
		return client.IgnoreNotFound(err)
	}
	kube.LogDeleted(ctx, r.Client, pod, pod.Labels[v1alpha1.RevisionLabel], "it ended, and its Runner is gone")
	return nil
}

// isOver reports whether a pod ended. The container of a persistent runner always restarts, so its pod is over when the
// container is down and the pod has no job mark.
func isOver(pod *corev1.Pod) bool {
	hasJob := pod.Labels[v1alpha1.JobIDLabel] != "" || pod.Annotations[v1alpha1.JobAnnotation] != ""
	return poolstatus.HasEnded(pod) || !hasJob && isDown(pod)
}

func (p pass) connectionKey() types.NamespacedName {
	return p.runner.Spec.ConnectionRef.From(p.runner.Namespace)
}

func timeOrNil(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t}
}
