// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package pools is the main loop: it gathers the state of a pool, lets the pure packages decide, and acts. It creates and
// ends runners and announces capacity.
package pools

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/connections"
	"github.com/corral-dev/corral/controllers/policies"
	"github.com/corral-dev/corral/controllers/runners"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/poolstatus"
	"github.com/corral-dev/corral/internal/wording"
)

// recheck is the delay until the next pass if nothing happens before. Something that a template needs, such as a
// ServiceAccount, may exist by then.
const recheck = time.Minute

// Sessions is the part of the pools' message sessions that the main loop uses. Their state is lost with the process, and
// GitHub sends it again.
type Sessions interface {
	Snapshot(key types.NamespacedName) (scaleset.Snapshot, bool)
	Announce(key types.NamespacedName, capacity int)
	Retain(key types.NamespacedName, keep func(runner string) bool)
	Refresh(key types.NamespacedName)
}

// RunnerResults holds the failures and successes of a pool's runners since its last pass, and receives the failures and
// suspicions that the pool itself finds. All of it is lost with the process.
type RunnerResults interface {
	SinceLastPass(pool types.NamespacedName) runners.Results
	HasFailed(runner types.NamespacedName, uid types.UID) bool
	MarkFailed(runner types.NamespacedName, uid types.UID, why poolstatus.Assessment)
	SuspectSome(namespace string, s poolstatus.Suspects, wereOnline map[string]bool, now time.Time)
	Completion(runner types.NamespacedName, uid types.UID) (at time.Time, over bool)
	LastJob(runner *v1alpha1.Runner) (job *v1alpha1.JobReference, done int32)
}

// +kubebuilder:rbac:groups=corral.dev,resources=runnerpools,verbs=list;watch
// +kubebuilder:rbac:groups=corral.dev,resources=runnerpools/status,verbs=patch
// +kubebuilder:rbac:groups=corral.dev,resources=runnerpools/finalizers,verbs=update
// +kubebuilder:rbac:groups=corral.dev,resources=runners,verbs=list;watch;create;delete
// +kubebuilder:rbac:groups=corral.dev,resources=runnerscalesets,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:groups=corral.dev,resources=githubconnections;poolsources,verbs=list;watch
// +kubebuilder:rbac:groups=apps,resources=controllerrevisions,verbs=list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles RunnerPools.
type Reconciler struct {
	kube.Reporter
	Sessions Sessions
	Results  RunnerResults
	// Live reads without a cache, for objects that a new pool must not miss.
	Live client.Reader
	// Demand reads the demand sources other than scale sets, and Jobs tracks the jobs that events report.
	Demand []Reader
	Jobs   JobTracker
	// Policies decides limits and templates.
	Policies *policies.Engine
	// Access reports which connections of other namespaces may be used. If nil, none may be used.
	Access *connections.Access
	// REST finds the clients with which runners without a scale set register, so that a pool can report a missing client
	// before an attempt; nil to omit that check.
	REST runners.RESTClients
	// Versions returns the runner version of pools; nil to leave it unknown.
	Versions *runners.Versions
	// Cluster identifies this cluster in the label that marks runners without a scale set.
	Cluster string
	// Zone is the time zone for policies. Default: UTC.
	Zone string
	Now  func() time.Time
	// Watches restarts the watch of Runners when it is silent.
	Watches runners.Watches
	// Claims reads and deletes the claims of the pools' caches.
	Claims runners.Claims

	memory memory
}

// Reconcile is the main loop, one pass of one pool: a chain of values.
//
//  1. observe → observation: gather the state, and store what runners require                          (observe.go)
//     - authorize:       may the pool use its connection?                                           (record.go)
//     - resolvePolicies: which policies apply?                                                      (policy.go)
//     - storeTemplate:   store the template as a ControllerRevision, if policies and the API server accept the pod (revision.go)
//     - record:          store what should exist on GitHub as a RunnerScaleSet                      (record.go)
//     - list:            derive the states of runners from Runners, pods and GitHub's snapshot      (observe.go)
//     - checkHealth:     give up denied runners, suspect disconnected ones, and hold back after failures or for quotas (health.go)
//     - readDemand, scaleNow: how many jobs there are, and which numbers the pool declares now      (demand.go)
//  2. plan → decision: policies return limits. Then decide, a pure function, lets internal/rollout plan what an update
//     replaces, and internal/scaling how many runners to create, which to end, and how much to announce (decide.go)
//  3. act: announce capacity, create and end runners                                               (act.go)
//     - protect:         prevent the eviction of runners with a job                                 (disruption.go)
//  4. project → status: numbers, their reason, conditions                                           (project.go)
//  5. remember: keep the state for the next pass; report changes in events and the history          (memory.go, history.go)
//
// A pool with the mode Observe has no template, record or runners, and only computes what it would do.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pool := &v1alpha1.RunnerPool{}
	if err := r.Client.Get(ctx, req.NamespacedName, pool); err != nil {
		if !apierrors.IsNotFound(err) {
			return ctrl.Result{}, fmt.Errorf("reading the pool: %w", err)
		}
		return ctrl.Result{}, r.forget(ctx, req.NamespacedName)
	}
	attempt := r.Begin(pool)
	if !pool.DeletionTimestamp.IsZero() { // the garbage collector deletes its runners and its RunnerScaleSet
		return r.leave(ctx, attempt, pool)
	}
	if err := kube.Unreadable(pool); err != nil {
		return attempt.Finish(ctx, kube.Done{}, err)
	}
	read := *pool // unchanged while the pass changes pool.Status
	o, err := r.observe(ctx, &read, r.memory.of(req.NamespacedName))
	var d *decision
	if err == nil {
		d = r.plan(ctx, o)
		note(ctx, o, *d)
		r.Jobs.AtMax(o.key(), isFull(o, *d))
		acted := r.act(ctx, o, *d)
		o.memory.budgets, err = r.protect(ctx, o, *d) // in any case, because the API server may refuse one deletion for long
		err = cmp.Or(acted, err)
	}
	pool.Status = project(o, d, err)
	done := doneBy(o, d, pool.Status, err)
	known := remember(o, d, err)
	var decided *v1alpha1.Decision
	if err == nil {
		decided = d.record
		measure(pool, d.plan.Desired, d.plan.Announce)
		err = outcome(o, d, done)
		r.recordEvents(o, d, kube.ReasonOf(err, ""))
		known.trouble = o.troubleAfter(err)
		done.Elsewhere, done.News = o.isLeft(known.trouble, done, err) || areUnloaded(d.failures, err), o.memory.trouble.unreported && !known.trouble.unreported
	}
	r.memory.commit(o.key(), known)
	done.After = soonest(done.After, r.recordHistory(ctx, o.pool, o.memory.history, pool.Status, decided))
	return attempt.Finish(ctx, done, err)
}

// note logs at debug level what a pass observed and planned.
func note(ctx context.Context, o observation, d decision) {
	if debug := log.FromContext(ctx).V(1); debug.Enabled() {
		debug.Info("Seen", "session", o.github.State, "jobsKnown", o.demand.Known, "jobs", o.demand.Jobs, "offered", o.demand.offered, "runners", o.counts, "limits", d.limits,
			"failures", d.failures, "desired", d.plan.Desired, "supply", d.plan.Supply, "create", d.plan.Create, "announce", d.plan.Announce, "why", d.plan.Reason)
	}
}

// plan evaluates the policies for the limits, and decides within them. If the grants of other pools change in the meantime,
// it evaluates the policies again, the third time while no other pool may be granted more. If that fails too, the pool does
// not grow in this pass.
func (r *Reconciler) plan(ctx context.Context, o observation) *decision {
	update, granted, question := r.askUpdate(ctx, o), r.Policies.Granted(o.key()), r.question(o)
	for range 2 {
		asked := r.Policies.Scaling(ctx, o.policies.bound, question)
		if d := decide(o, update, asked.Answer, granted); r.Policies.Commit(asked, d.grant) {
			return &d
		}
	}
	asked := r.Policies.Alone(ctx, o.policies.bound, question)
	d := decide(o, update, asked.Answer, granted)
	if !r.Policies.Commit(asked, d.grant) {
		asked.Answer.Failures = append(asked.Answer.Failures, contended)
		d = decide(o, update, asked.Answer, granted)
		r.Policies.Hold(asked, d.grant)
		d.lookAgain = soonest(d.lookAgain, leastUntil)
	}
	return &d
}

// remember returns the state for the next pass.
func remember(o observation, d *decision, err error) poolMemory {
	m := o.memory
	if d != nil {
		m.pacing = d.pacing
	}
	m.health.undeleted = m.health.undeleted.after(o, err)
	m.health.refusal = m.health.refusal.after(o, d, err)
	if err == nil {
		m.limits = d.limits
		if key := phaseKey(d.step.State); key != phaseKey(o.pool.Status.Update) {
			m.phase = key
		}
	}
	return m
}

// recordEvents emits events for changed limits, another update phase and a new interruption, except if the condition Ready
// is about to report the same reason.
func (r *Reconciler) recordEvents(o observation, d *decision, reason string) {
	if i := o.memory.health.interruption; i.isNew && !d.circuit.Open() && reason != i.reason {
		r.Event(o.pool, corev1.EventTypeWarning, i.reason, catalog.Messages(catalog.Plain(i.causes())))
	}
	if before, now := o.lastLimits(), d.limits; before != nil && newLimits(before, now) {
		r.Event(o.pool, corev1.EventTypeNormal, limitsChanged, fmt.Sprintf("min %d, max %s, idle %d (before: %d, %s, %d)%s",
			now.Min, wording.Max(now.GetMax()), now.Idle, before.Min, wording.Max(before.GetMax()), before.Idle, boundsText(now.Bounds)))
	}
	before, now := o.pool.Status.Update, d.step.State
	isReported := now != nil && now.Phase == v1alpha1.UpdateRolledBack && reason == v1alpha1.RolledBackReason
	if key := phaseKey(now); key != phaseKey(before) && key != o.memory.phase && !isReported {
		r.phaseEvent(o.pool, before, now)
	}
}
