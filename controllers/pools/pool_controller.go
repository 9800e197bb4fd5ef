// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package pools is the main loop: it gathers what is known of a pool, lets the pure
// packages decide, and acts: runners created, runners ended, capacity announced.
package pools

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fluxcd/pkg/apis/meta"
	"github.com/fluxcd/pkg/runtime/conditions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/connections"
	"github.com/corral-dev/corral/controllers/policies"
	"github.com/corral-dev/corral/controllers/runners"
	"github.com/corral-dev/corral/internal/demand"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/poolstatus"
	"github.com/corral-dev/corral/internal/rollout"
	"github.com/corral-dev/corral/internal/scaling"
)

// recheck is the time to the next pass if nothing happens before: what a template
// needs may have come about, such as a ServiceAccount.
const recheck = time.Minute

// Sessions is what the main loop needs of the pools' message sessions.
type Sessions interface {
	Snapshot(key types.NamespacedName) (scaleset.Snapshot, bool)
	Announce(key types.NamespacedName, capacity int)
	Retain(key types.NamespacedName, keep func(runner string) bool)
	Refresh(key types.NamespacedName)
}

// Failures are those of a pool's runners that nobody took yet, and what they did well; those that the pool adds
// to them, and its doubts of runners that seem busy.
type Failures interface {
	TakeOutcomes(pool types.NamespacedName) runners.Outcomes
	MarkFailed(runner types.NamespacedName, uid types.UID, why poolstatus.Verdict)
	Suspect(runner types.NamespacedName, now time.Time)
	Completion(runner types.NamespacedName, uid types.UID) (at time.Time, over bool)
}

// +kubebuilder:rbac:groups=corral.dev,resources=runnerpools,verbs=list;watch
// +kubebuilder:rbac:groups=corral.dev,resources=runnerpools/status,verbs=patch
// +kubebuilder:rbac:groups=corral.dev,resources=runnerpools/finalizers,verbs=update
// +kubebuilder:rbac:groups=corral.dev,resources=runners,verbs=list;watch;create;delete
// +kubebuilder:rbac:groups=corral.dev,resources=scalesets,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:groups=corral.dev,resources=githubconnections;poolsources,verbs=list;watch
// +kubebuilder:rbac:groups=apps,resources=controllerrevisions,verbs=list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles RunnerPools.
type Reconciler struct {
	kube.Reporter
	Sessions Sessions
	Failures Failures
	// Live reads without a cache, for what a new pool must not miss.
	Live client.Reader
	// Demand says what else tells of jobs, and Desk keeps account of those that events tell of.
	Demand []Reader
	Desk   Desk
	// Policies decide on limits and templates.
	Policies *policies.Engine
	// Access says which connections of other namespaces may be used; nil for none.
	Access *connections.Access
	// REST finds the clients by which runners without a scale set register; nil to not look.
	REST runners.RESTClients
	// Cluster identifies this cluster in the label by which runners without a scale set are found.
	Cluster string
	// Zone is the time zone that policies are told. Default: UTC.
	Zone string
	Now  func() time.Time

	memory memory
}

// run is one reconciliation of one pool.
type run struct {
	*Reconciler
	key     types.NamespacedName
	pool    *v1alpha1.RunnerPool
	set     *v1alpha1.ScaleSet // nil until the record is in the cache
	url     string             // of the connection, for runners without a scale set; empty if it isn't there
	words   scaleset.Snapshot  // what GitHub said
	runners []observed
	lost    []*v1alpha1.Runner // given up by this pass
	recall  *recollection
	holds   []scaling.Hold
	known   map[string][]byte // the templates of the revisions that are stored
	barred  map[string]bool   // those that policies deny
	care    care              // what policies make of an update
	step    rollout.Plan      // of an update
	was     *v1alpha1.UpdateStatus
	plan    scaling.Plan
	again   time.Duration // to the next pass if nothing happens; 0 for no wish
	// ailment is the reason that holds the pool back although its record and template are
	// good, and ails says why; "" for none.
	ailment, ails string
	demand        demand.Demand  // what tells of jobs
	accepted      int32          // jobs that GitHub assigned
	actual        *demand.Actual // what runs beside a pool that observes; nil if that isn't known
	scale         policy.Scale   // the numbers that the pool declares now
	idleWhy       string         // why idle is another than declared; "" if it isn't
	unread        []string       // fields that mean nothing, with what is wrong
	stored        string         // the revision that the status had
	digest        string         // of the spec's template
	adopted       string         // the revision that is the spec's template; empty if that can't be used
	facts         policy.Pool    // what policies are told of the pool
	bound         *policy.Bound  // the policies that bind it
	unasked       []policy.Failure
	failures      []policy.Failure        // of policies that could not be asked
	asked         policy.Scaling          // the answer that the limits are of
	limits        *v1alpha1.DecidedLimits // that hold; nil if there never were any
	held          *v1alpha1.DecidedLimits // that held before this pass
	// judged is what the status said of the template.
	judged *v1alpha1.TemplateVerdict
	// denied is why the pool may not use its connection; nil if it may.
	denied error
	// invalid is why the template of the spec can't be used; the last valid one goes on.
	invalid error
	// newLimits is true when the limits are others than before.
	newLimits bool
	// newPhase is true when an update came into another phase.
	newPhase bool
}

// Reconcile is the main loop, one pass of one pool:
//
//  1. consent:  may the pool use its connection?                                          (record.go)
//     bind:     which policies bind the pool?                                             (policy.go)
//  2. revision: the template becomes a ControllerRevision, if policies and the API server
//     take the pod                                                                        (revision.go)
//  3. record:   what should exist on GitHub becomes a ScaleSet                            (record.go)
//  4. observe:  runners, pods and the words of GitHub become states                       (observe.go)
//  5. bar:      runners whose template policies deny by now are ended                     (policy.go)
//  6. examine:  runners that never connect, rows of failures, quotas hold the pool back   (health.go)
//  7. decide:   what tells of jobs is added up (demand.go), policies say within which limits,
//     internal/rollout what an update replaces, internal/scaling how many, which and how much to accept
//  8. act:      runners are created and ended, capacity is announced                      (act.go)
//  9. report:   numbers, their reason, conditions
//
// A pool with the mode Observe only binds, decides and reports.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	pool := &v1alpha1.RunnerPool{}
	if err := r.Client.Get(ctx, req.NamespacedName, pool); err != nil {
		if !apierrors.IsNotFound(err) {
			return ctrl.Result{}, fmt.Errorf("reading the pool: %w", err)
		}
		return ctrl.Result{}, r.forget(ctx, req.NamespacedName)
	}
	if !pool.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // garbage collection reaches its runners and its ScaleSet
	}
	if err := kube.Unreadable(pool); err != nil {
		return r.Begin(pool).Finish(ctx, kube.Done{}, err)
	}
	x := &run{Reconciler: r, key: req.NamespacedName, pool: pool, recall: r.memory.of(req.NamespacedName), stored: pool.Status.Revision, judged: pool.Status.Template}
	x.held = x.recall.limits
	if x.held == nil {
		x.held = lastLimits(pool)
	}
	attempt := r.Begin(pool)
	var err error
	steps := []func(context.Context) error{x.consent, x.bind, x.revision, x.record, x.observe, x.bar, x.examine, x.decide, x.act, x.report}
	if x.observes() {
		steps = []func(context.Context) error{x.consent, x.bind, x.decide, x.report}
	}
	for _, step := range steps {
		if err = step(ctx); err != nil {
			break
		}
	}
	x.chronicle(ctx)
	x.takeBack()
	return attempt.Finish(ctx, x.done(), err)
}

// decide asks policies for the limits and lets scaling compute the plan within them.
func (x *run) decide(ctx context.Context) error {
	x.tally()
	if err := x.consult(ctx); err != nil {
		return err
	}
	in := scaling.Input{
		Suspended: x.pool.Spec.Suspend || x.moving() || x.denied != nil,
		Jobs:      x.accepted, Told: x.demand.Jobs, JobsKnown: x.demand.Known, Keep: x.demand.Keep, Demand: x.demand.Reason, IdleWhy: x.idleWhy,
		Total: x.demand.Total, Why: x.demand.TotalReason,
		Holds: x.holds, Now: x.Now(),
	}
	if x.denied != nil {
		in.Barred = "the connection may not be used"
	}
	for _, o := range x.runners {
		in.Runners = append(in.Runners, scaling.Runner{
			Name: o.runner.Name, State: o.verdict.State, Settling: o.verdict.Settling, Since: o.verdict.Since,
			Deleting: !o.runner.DeletionTimestamp.IsZero(),
		})
	}
	x.withinLimits(ctx, in)
	x.Desk.AtMax(x.key, x.isFull())
	x.lookAgain(x.plan.LookAgain)
	return nil
}

// changing is why limits are held when what others were granted changed each time that policies were asked.
var changing = policy.Failure{Kind: policy.EvaluationError, Message: "what other pools were granted changed each time that policies were asked: they are asked again"}

// withinLimits plans within the limits that policies set. If what others were granted changes meanwhile, they are asked
// again, the third time alone.
func (x *run) withinLimits(ctx context.Context, in scaling.Input) {
	const tries = 3
	takeBack := x.checkpoint()
	for try := 1; ; try++ {
		ask := x.Policies.Scaling
		if try == tries {
			ask = x.Policies.Alone
		}
		asked := ask(ctx, x.bound, x.question())
		if x.Policies.Commit(ctx, asked, x.planned(in, asked.Answer)) {
			return
		}
		takeBack()
		if try == tries {
			asked.Answer.Failures = append(asked.Answer.Failures, changing)
			x.Policies.Hold(asked, x.planned(in, asked.Answer))
			x.lookAgain(leastUntil)
			return
		}
	}
}

// checkpoint returns what takes a plan back.
func (x *run) checkpoint() (takeBack func()) {
	failures, again, update, limits, answer, ailment, ails := x.failures, x.again, x.pool.Status.Update, x.limits, x.asked, x.ailment, x.ails
	paced, isPaced, desired := x.recall.paced.Clone(), x.recall.isPaced, x.recall.desired
	return func() {
		x.failures, x.again, x.pool.Status.Update, x.limits, x.asked, x.ailment, x.ails = failures, again, update, limits, answer, ailment, ails
		x.recall.paced, x.recall.isPaced, x.recall.desired = paced, isPaced, desired
	}
}

// planned plans within the limits of an answer, and returns what is to be granted for it.
func (x *run) planned(in scaling.Input, answer policy.Scaling) policies.Grant {
	in.Runners, in.Holds = slices.Clone(in.Runners), slices.Clone(in.Holds)
	x.limit(&in, answer)
	x.pace(&in)
	x.rollOut(&in)
	x.plan = scaling.Decide(in)
	if x.limits == nil {
		x.plan.Reason = "policies have not decided yet: nothing is started or ended"
	}
	return x.grant(in)
}

// tally counts jobs and runners.
func (x *run) tally() {
	s := &x.pool.Status
	s.Runners = v1alpha1.RunnerCounts{}
	for _, o := range x.runners {
		poolstatus.Count(&s.Runners, o.verdict.State, x.outdated(o.runner))
	}
	x.gauge()
}

// report writes down the numbers, and turns what is amiss into an outcome.
func (x *run) report(ctx context.Context) error {
	s := &x.pool.Status
	x.tellPolicies()
	x.tellUpdate()
	x.compare()
	d := x.decision()
	x.note(d)
	if !sameDecision(s.Decision, d) {
		s.Decision = d
	}
	measure(x.key, s, x.plan.Desired, x.plan.Announce)
	if at, ok := meta.ReconcileAnnotationValue(x.pool.Annotations); ok {
		s.LastHandledReconcileAt = at
	}
	if err := cmp.Or(x.denied, x.invalid, x.misunderstood()); err != nil {
		return err
	}
	if err := x.mirror(ctx); err != nil {
		return err
	}
	if x.ailment != "" {
		return kube.Wait(x.ailment, x.next(), "%s", x.ails)
	}
	return nil
}

// next is the time to the next pass if nothing happens before.
func (x *run) next() time.Duration { return min(cmp.Or(x.again, recheck), recheck) }

// mirror passes on what keeps the scale set from being ready, or runners from being registered.
func (x *run) mirror(ctx context.Context) error {
	if x.isREST() || x.observes() {
		return x.mirrorREST(ctx)
	}
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
	// What goes on when a later template is refused, or fails, has to be durable.
	d := kube.Done{After: x.next(), Urgent: x.newPhase || x.newLimits || x.pool.Status.Revision != x.stored || isAllowed(x.pool.Status.Template) != isAllowed(x.judged)}
	switch {
	case x.observes():
		d.Message = "observing: " + x.pool.Status.Observed.Difference
	case x.pool.Spec.Suspend:
		d.Unready, d.Message = v1alpha1.SuspendedReason, "suspended: no new jobs are taken in"
	case x.isREST():
		d.Message = "registering runners by GitHub's REST API"
	case x.set != nil:
		d.Message = fmt.Sprintf("listening as scale set %q (id %d)", x.set.Status.Name, x.set.Status.ID)
	}
	return d
}
