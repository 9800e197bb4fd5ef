// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package runner takes each Runner through its life: register, start a pod, watch
// it, and, when it is over, deregister first and clean up second.
package runner

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/poolstatus"
	actions "github.com/corral-dev/corral/internal/scaleset"
)

// lingering is how long a runner's container may go on after its job completed
// before the runner is ended.
const lingering = time.Minute

// Clients finds the GitHub client of a connection by NAMESPACE/NAME.
type Clients interface {
	Get(key string) (*actions.Client, bool)
}

// +kubebuilder:rbac:groups=corral.dev,resources=runners,verbs=get;list;watch;create;delete;patch
// +kubebuilder:rbac:groups=corral.dev,resources=runners/status,verbs=patch
// +kubebuilder:rbac:groups=corral.dev,resources=runners/finalizers,verbs=update
// +kubebuilder:rbac:groups=corral.dev,resources=runnerpools;githubconnections;poolsources,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;delete;patch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get;create
// +kubebuilder:rbac:groups=apps,resources=controllerrevisions,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles Runners.
type Reconciler struct {
	kube.Reporter
	// Live reads without a cache: Secrets by name, and what the cache may not show yet.
	Live    client.Reader
	Clients Clients
	Now     func() time.Time

	// deregistered has the UIDs of runners that GitHub forgot, by name: a cache that does
	// not show it yet must not make us ask again.
	deregistered sync.Map
}

// run is one reconciliation of one runner.
type run struct {
	*Reconciler
	runner  *v1alpha1.Runner
	pod     *corev1.Pod // nil if there is none
	verdict poolstatus.Verdict
	trouble error // why it could not be started yet; its deadline runs on
	gone    bool  // let go of: there is no status to write any more
}

// Reconcile brings one runner a step further:
//
//  1. deleting: deregister, delete the pod, let go (finalize.go)
//  2. start: JIT configuration into a Secret (register.go), then the pod (pod.go)
//  3. observe: state and its reason
//  4. end: delete the Runner when it is over, which leads to 1
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	runner := &v1alpha1.Runner{}
	if err := r.Client.Get(ctx, req.NamespacedName, runner); err != nil {
		return ctrl.Result{}, r.sweep(ctx, req, err)
	}
	pod, err := r.podOf(ctx, runner)
	if err != nil {
		return ctrl.Result{}, err
	}
	x := &run{Reconciler: r, runner: runner, pod: pod}
	attempt := r.Begin(runner)
	steps := []func(context.Context) error{x.start, x.observe, x.end}
	if !runner.DeletionTimestamp.IsZero() {
		if !controllerutil.ContainsFinalizer(runner, v1alpha1.RunnerFinalizer) {
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
		return ctrl.Result{}, nil
	}
	return attempt.Finish(ctx, x.done(), err)
}

// start registers the runner and creates its pod. What goes wrong is told at the end:
// a runner that can't be started must still be given up at its deadline.
func (x *run) start(ctx context.Context) error {
	if x.trouble = x.register(ctx); x.trouble == nil {
		x.trouble = x.reconcilePod(ctx)
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
	x.verdict = poolstatus.Judge(o, x.Now())
	s := &x.runner.Status
	s.StartedAt, s.EndedAt, s.EndedClean = timeOrNil(o.StartedAt), timeOrNil(o.EndedAt), o.EndedClean
	s.State, s.Reason, s.Job = x.verdict.State, x.verdict.Reason, o.Job
	return nil
}

// end deletes a runner that is over. A finished one whose container still runs is
// given a moment to exit by itself.
func (x *run) end(ctx context.Context) error {
	switch {
	case x.trouble != nil && x.verdict.State != v1alpha1.RunnerFailed:
		return x.trouble
	case x.verdict.State == v1alpha1.RunnerPending:
		return kube.Progress(max(time.Millisecond, x.verdict.Until.Sub(x.Now())), "%s: %s", x.verdict.State, x.verdict.Reason)
	case x.verdict.Settling:
		return nil
	case x.verdict.State == v1alpha1.RunnerFailed:
	case x.verdict.State == v1alpha1.RunnerFinished && (x.runner.Status.EndedAt != nil || x.beyond(lingering) >= 0):
	default:
		return nil
	}
	uid := x.runner.UID
	err := x.Client.Delete(ctx, x.runner.DeepCopy(), client.Preconditions{UID: &uid})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("ending the runner: %w", err)
	}
	return nil
}

// beyond returns by how much the runner has been in its state for longer than a bound;
// negative when it has not.
func (x *run) beyond(bound time.Duration) time.Duration {
	return x.Now().Sub(x.verdict.Since) - bound
}

// done tells when to look again if nothing happens.
func (x *run) done() kube.Done {
	d := kube.Done{Message: string(x.verdict.State) + ": " + x.verdict.Reason}
	if x.verdict.State == v1alpha1.RunnerFinished || x.verdict.State == v1alpha1.RunnerFailed {
		d.Unready = string(x.verdict.State)
	}
	if x.verdict.State == v1alpha1.RunnerFinished && x.runner.Status.EndedAt == nil {
		d.After = max(time.Second, -x.beyond(lingering))
	}
	if !x.verdict.Until.IsZero() {
		d.After = max(time.Millisecond, x.verdict.Until.Sub(x.Now()))
	}
	return d
}

func (x *run) startupDeadline(ctx context.Context) (time.Duration, error) {
	pool := &v1alpha1.RunnerPool{}
	key := types.NamespacedName{Namespace: x.runner.Namespace, Name: x.runner.Spec.PoolRef.Name}
	if err := x.Client.Get(ctx, key, pool); client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("reading the pool: %w", err)
	}
	return pool.Spec.Deadlines.GetStartup(), nil
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
	r.deregistered.Delete(req.NamespacedName)
	pod := &corev1.Pod{}
	if err := r.Client.Get(ctx, req.NamespacedName, pod); err != nil {
		return client.IgnoreNotFound(err)
	}
	ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	if !ended || pod.Annotations[v1alpha1.RunnerUIDAnnotation] == "" {
		return nil
	}
	return client.IgnoreNotFound(r.Client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}))
}

// client finds the runner's GitHub client.
func (x *run) client() (*actions.Client, bool) {
	return x.Clients.Get(x.runner.Namespace + "/" + x.runner.Spec.ConnectionRef.Name)
}

func timeOrNil(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t}
}
