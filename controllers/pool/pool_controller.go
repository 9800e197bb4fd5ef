// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package pool is the main loop: it gathers what is known of a pool, lets the pure
// packages decide, and acts: runners created, runners ended, capacity announced.
package pool

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	"github.com/fluxcd/pkg/runtime/conditions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/runner"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/poolstatus"
	actions "github.com/corral-dev/corral/internal/scaleset"
	"github.com/corral-dev/corral/internal/scaling"
)

// recheck is the time to the next pass if nothing happens before: what a template
// needs may have come about, such as a ServiceAccount.
const recheck = time.Minute

// Sessions is what the main loop needs of the pools' message sessions.
type Sessions interface {
	Snapshot(key types.NamespacedName) (actions.Snapshot, bool)
	Announce(key types.NamespacedName, capacity int)
	Retain(key types.NamespacedName, keep func(runner string) bool)
	Refresh(key types.NamespacedName)
}

// Failures are those of a pool's runners that nobody took yet, those that the pool adds
// to them, and its doubts of runners that seem busy.
type Failures interface {
	TakeFailures(pool types.NamespacedName) []runner.Failure
	Condemn(runner types.NamespacedName, uid types.UID, why poolstatus.Verdict)
	Doubt(runner types.NamespacedName, now time.Time)
}

// +kubebuilder:rbac:groups=corral.dev,resources=runnerpools,verbs=get;list;watch
// +kubebuilder:rbac:groups=corral.dev,resources=runnerpools/status,verbs=patch
// +kubebuilder:rbac:groups=corral.dev,resources=runnerpools/finalizers,verbs=update
// +kubebuilder:rbac:groups=corral.dev,resources=runners,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=corral.dev,resources=scalesets,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=corral.dev,resources=githubconnections;poolsources,verbs=get;list;watch
// +kubebuilder:rbac:groups=apps,resources=controllerrevisions,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles RunnerPools.
type Reconciler struct {
	kube.Reporter
	Sessions Sessions
	Failures Failures
	Now      func() time.Time

	memory memory
}

// run is one reconciliation of one pool.
type run struct {
	*Reconciler
	key     types.NamespacedName
	pool    *v1alpha1.RunnerPool
	set     *v1alpha1.ScaleSet // nil until the record is in the cache
	words   actions.Snapshot   // what GitHub said
	runners []observed
	lost    []*v1alpha1.Runner // given up by this pass
	recall  *recollection
	holds   []scaling.Hold
	plan    scaling.Plan
	again   time.Duration // to the next pass if nothing happens; 0 for no wish
	// ailment is the reason that holds the pool back although its record and template are
	// good, and ails says why; "" for none.
	ailment, ails string
	stored        string // the revision that the status had
	// invalid is why the template of the spec can't be used; the last valid one goes on.
	invalid error
}

// Reconcile is the main loop, one pass of one pool:
//
//  1. revision: the template becomes a ControllerRevision, if the API server takes the pod (revision.go)
//  2. record:   what should exist on GitHub becomes a ScaleSet                            (record.go)
//  3. observe:  runners, pods and the words of GitHub become states                       (observe.go)
//  4. examine:  runners that never connect, rows of failures, quotas hold the pool back   (health.go)
//  5. decide:   internal/scaling says how many, which and how much to accept
//  6. act:      runners are created and ended, capacity is announced                      (act.go)
//  7. report:   numbers, their reason, conditions
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pool := &v1alpha1.RunnerPool{}
	if err := r.Client.Get(ctx, req.NamespacedName, pool); err != nil {
		r.forget(req.NamespacedName)
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !pool.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // garbage collection reaches its runners and its ScaleSet
	}
	x := &run{Reconciler: r, key: req.NamespacedName, pool: pool, recall: r.memory.of(req.NamespacedName), stored: pool.Status.Revision}
	attempt := r.Begin(pool)
	var err error
	for _, step := range []func(context.Context) error{x.revision, x.record, x.observe, x.examine, x.decide, x.act, x.report} {
		if err = step(ctx); err != nil {
			break
		}
	}
	return attempt.Finish(ctx, x.done(), err)
}

// decide lets scaling compute the plan from what was observed.
func (x *run) decide(context.Context) error {
	s := x.pool.Spec.Scale
	in := scaling.Input{
		Limits:    scaling.Limits{Min: s.GetMin(), Max: s.GetMax(), Idle: s.GetIdle()},
		Suspended: x.pool.Spec.Suspend || x.moving(),
		Jobs:      int32(x.words.Assigned), JobsKnown: x.words.Known && x.words.State != actions.OwnedElsewhere, //nolint:gosec // GitHub's counts fit
		Holds: x.holds, Now: x.Now(),
	}
	for _, o := range x.runners {
		in.Runners = append(in.Runners, scaling.Runner{
			Name: o.runner.Name, State: o.verdict.State, Settling: o.verdict.Settling, Since: o.verdict.Since,
			Outdated: x.outdated(o.runner), Deleting: !o.runner.DeletionTimestamp.IsZero(),
		})
	}
	x.plan = scaling.Decide(in)
	x.lookAgain(x.plan.LookAgain)
	return nil
}

// report writes down the numbers, and turns what is amiss into an outcome.
func (x *run) report(context.Context) error {
	s := &x.pool.Status
	s.Jobs = int32(x.words.Assigned) //nolint:gosec // GitHub's counts fit
	s.Runners = v1alpha1.RunnerCounts{}
	for _, o := range x.runners {
		poolstatus.Count(&s.Runners, o.verdict.State, x.outdated(o.runner))
	}
	measure(x.key, s, x.plan.Desired, x.plan.Announce)
	if d := s.Decision; d == nil || d.Desired != x.plan.Desired || d.Announced != x.plan.Announce || d.Reason != x.plan.Reason {
		s.Decision = x.decision()
	}
	if at, ok := meta.ReconcileAnnotationValue(x.pool.Annotations); ok {
		s.LastHandledReconcileAt = at
	}
	if x.invalid != nil {
		return x.invalid
	}
	if err := x.mirror(); err != nil {
		return err
	}
	if x.ailment != "" {
		return kube.Wait(x.ailment, x.next(), "%s", x.ails)
	}
	return nil
}

// next is the time to the next pass if nothing happens before.
func (x *run) next() time.Duration { return min(cmp.Or(x.again, recheck), recheck) }

// mirror passes on what keeps the scale set from being ready.
func (x *run) mirror() error {
	if x.set == nil || x.moving() {
		return kube.Progress(recordRetry, "the scale set is being made")
	}
	ready := conditions.Get(x.set, v1alpha1.ReadyCondition)
	switch {
	case ready == nil || x.set.Status.ObservedGeneration != x.set.Generation:
		return kube.Progress(recordRetry, "the scale set is being made")
	case conditions.IsStalled(x.set):
		return kube.Stall(ready.Reason, "scale set: %s", ready.Message)
	case ready.Status == metav1.ConditionFalse:
		return kube.Wait(ready.Reason, recordRetry, "scale set: %s", ready.Message)
	case ready.Status == metav1.ConditionUnknown:
		return kube.Progress(recordRetry, "scale set: %s", ready.Message)
	}
	return nil
}

// done says how a pass that went well is reported.
func (x *run) done() kube.Done {
	d := kube.Done{After: x.next(), Urgent: x.pool.Status.Revision != x.stored} // what goes on when a later template is refused
	switch {
	case x.pool.Spec.Suspend:
		d.Unready, d.Message = v1alpha1.SuspendedReason, "suspended: no new jobs are taken in"
	case x.set != nil:
		d.Message = fmt.Sprintf("listening as scale set %q (id %d)", x.set.Status.Name, x.set.Status.ID)
	}
	return d
}
