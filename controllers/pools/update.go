// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	corev1 "k8s.io/api/core/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/rollout"
	"github.com/corral-dev/corral/internal/scaling"
)

// pausedReason is why an update that a user paused does not continue.
const pausedReason = "paused by spec.update.paused"

// maxTried limits how many runners of a new template's trial are remembered.
const maxTried = 256

// planUpdate plans the next step of an update, within the limits of the input.
func planUpdate(o observation, u updateLimits, in scaling.Input, list []rollout.Runner) rollout.Plan {
	desired, _ := scaling.Desired(in)
	bounds, hold := boundsOf(o.pool, desired), u.hold
	if u.answer != (rollout.Bounds{}) {
		bounds = bounds.Narrowed(u.asked, u.answer)
	}
	if o.pool.Spec.Update.Paused {
		hold = pausedReason
	}
	to, denied := o.template.revision, ""
	if o.revisions.denied[to] != "" {
		denied = "policies deny revision " + to
	}
	records, next := o.records()
	step := rollout.Next(rollout.Input{
		To: to, Stored: o.pool.Status.Revision, State: o.updateState(), Bounds: bounds, Hold: hold, Denied: denied,
		Desired: min(desired, roomFor(o.pool)), JobsKnown: in.Demand.Known, Runners: list, Usable: o.revisions.usable(), Records: records,
		Tried: o.memory.trial.over(), Well: o.pool.Spec.Deadlines.GetConnect(), Now: o.now,
	})
	if in.Demand.Known {
		step.End = append(step.End, o.strays()...)
		step.End = append(step.End, o.blockedOutdated(step)...)
	}
	step.LookAgain = soonest(step.LookAgain, next, o.nextRetirement())
	return step
}

// updateState returns the update in progress, or the last one if it was rolled back. A retry request restarts a rolled-back
// update.
func (o observation) updateState() *v1alpha1.UpdateStatus {
	u := o.pool.Status.Update
	if u == nil || u.Phase != v1alpha1.UpdateRolledBack || !o.health.retries {
		return u
	}
	again := *u
	again.Phase = ""
	return &again
}

// boundsOf returns the bounds of an update that the pool declares. New runners for which the cache has no claim do not
// count as surge: they would wait for claims of old runners or, if they are persistent, never have a claim.
func boundsOf(pool *v1alpha1.RunnerPool, desired int32) rollout.Bounds {
	b, room := rollout.Declared(pool.Spec.Update, desired), roomFor(pool)
	if c := pool.Spec.Cache; c != nil && pool.Spec.Persists() {
		room = min(room, c.MaxClaims)
	}
	return b.Within(room, desired)
}

// roomFor returns how many runners of the pool can run at the same time. Only a cache whose claims the runners wait for
// limits the number.
func roomFor(pool *v1alpha1.RunnerPool) int32 {
	if c := pool.Spec.Cache; c != nil && c.GetOnMissing() == v1alpha1.WaitForClaim {
		return c.MaxClaims
	}
	return math.MaxInt32
}

// withUpdate adds a step of an update to the scaling input. list has the runners of the input, in the same order.
func withUpdate(in scaling.Input, step rollout.Plan, list []rollout.Runner) scaling.Input {
	in.Extra, in.Surge = step.Extra, step.Surge
	in.Runners = slices.Clone(in.Runners)
	ends := make(map[string]bool, len(step.End))
	for _, name := range step.End {
		ends[name] = true
	}
	for i, r := range list {
		in.Runners[i].Outdated = r.Revision != step.InForce
		in.Runners[i].Deleting = in.Runners[i].Deleting || ends[r.Name]
	}
	return in
}

// rolloutRunners lists the runners for the planner, in the order of the observation. A stray runner gets no revision and
// counts as being deleted, because it ends as soon as it has no job, independently of an update.
func rolloutRunners(o observation) []rollout.Runner {
	list, retiring := make([]rollout.Runner, 0, len(o.runners)), o.retiring()
	for _, x := range o.runners {
		r := rollout.Runner{
			Name: x.runner.Name, Revision: x.runner.Spec.Revision, State: x.verdict.State, Settling: x.verdict.Settling && x.runner.CurrentJob() != nil,
			Deleting: x.isEnding() || retiring[x.runner.Name], Started: startOf(x), Since: x.verdict.Since,
			Persists: x.runner.Persists(),
		}
		if job := x.runner.Status.Job; r.Persists && job.IsOver() {
			r.Worked = job.CompletedAt.Time
		}
		if known, ok := o.memory.trial.seen[r.Name]; ok {
			r.Started = known.started
		}
		if o.isStray(x.runner) {
			r.Revision, r.Deleting = "", true
		}
		list = append(list, r)
	}
	return list
}

// startOf returns when a runner started; zero if it did not. For a busy runner it may return a later time, when its job
// began.
func startOf(x observed) time.Time {
	switch {
	case x.runner.Status.StartedAt != nil:
		return x.runner.Status.StartedAt.Time
	case x.verdict.State == v1alpha1.RunnerPending, x.verdict.State == v1alpha1.RunnerFailed:
		return time.Time{}
	}
	return x.verdict.Since
}

// strays returns the runners that must end although no update replaces them: runners without a job that are stray, or that
// retire now.
func (o observation) strays() []string {
	names := slices.Sorted(maps.Keys(o.retiring()))
	for _, x := range o.runners {
		if x.waits() && !x.isEnding() && !slices.Contains(names, x.runner.Name) && o.isStray(x.runner) {
			names = append(names, x.runner.Name)
		}
	}
	return names
}

// blockedOutdated returns the runners of previous templates that wait for room. Runners of the new template may need less
// room, but would wait behind them.
func (o observation) blockedOutdated(step rollout.Plan) (names []string) {
	for _, x := range o.runners {
		revision := x.runner.Spec.Revision
		isMade := revision == step.Rest || revision == o.template.revision || o.memory.health.circuits[revision].Open() // the revision is in use or being tried
		if x.verdict.Blocked && !isMade && !x.isEnding() && !slices.Contains(step.End, x.runner.Name) {
			names = append(names, x.runner.Name)
		}
	}
	return names
}

// records returns how the runners of the revisions performed, and the delay after which that may change.
func (o observation) records() (records map[string]rollout.Record, next time.Duration) {
	records = map[string]rollout.Record{}
	for revision, c := range o.memory.health.circuits {
		left := c.Rounds.Left(o.now)
		if c.Failures == 0 && left == 0 {
			continue
		}
		next = soonest(next, left)
		r := rollout.Record{Owned: c.Owned, Open: c.Open(), Paced: left > 0, First: c.First, Last: c.Last, Message: c.Row()}
		if r.Open {
			hold, wait := c.Hold(0, 0, o.probes(c), o.now)
			r.Probe, next = hold.Create > 0, soonest(next, wait)
		}
		records[revision] = r
	}
	return records, next
}

// change returns the input of corral.update, and the bounds that the pool declares; false if there is no update that could
// be held. It computes the bounds for the desired number of the last decision.
func (o observation) change() (policy.Change, rollout.Bounds, bool) {
	u, to := o.updateState(), o.template.revision
	c := policy.Change{To: to}
	switch {
	case u != nil && u.To == to:
		c.From, c.Phase, c.Since = u.From, string(u.Phase), u.Since.UnixNano()
	case u != nil:
		c.From = u.From
	default:
		c.From = o.former()
	}
	// If runners of the previous template fail as well, an update that was rolled back may continue.
	isSettled := c.Phase == string(v1alpha1.UpdateRolledBack) && !o.memory.health.circuits[c.From].Open()
	if c.From == "" || c.From == to || isSettled {
		return policy.Change{}, rollout.Bounds{}, false
	}
	for _, x := range o.runners {
		if (x.waits() || x.verdict.State == v1alpha1.RunnerBusy) && x.runner.Spec.Revision == to {
			c.Updated++
		}
	}
	var desired int32
	if d := o.pool.Status.Decision; d != nil {
		desired = d.Desired
	}
	b := boundsOf(o.pool, desired)
	c.Strategy, c.MaxSurge, c.MaxUnavailable, c.Canary = string(b.Strategy), b.MaxSurge, b.MaxUnavailable, b.Canary
	return c, b, true
}

// former returns the revision from which an update without a state would start, according to the status or the runners;
// empty if no update is due.
func (o observation) former() string {
	to, stored := o.template.revision, o.pool.Status.Revision
	if stored != "" && stored != to {
		return stored
	}
	for _, x := range o.runners {
		isBusy := x.verdict.State == v1alpha1.RunnerBusy && stored == ""
		if (x.waits() || isBusy) && x.runner.Spec.Revision != to {
			return x.runner.Spec.Revision
		}
	}
	return ""
}

// markUpdated sets the condition that reports the progress of the update to a template.
func markUpdated(pool *v1alpha1.RunnerPool, step rollout.Plan, t templateState) {
	switch u := step.State; {
	case u != nil && u.Phase == v1alpha1.UpdateHeld:
		kube.Mark(pool, v1alpha1.UpdatedCondition, catalog.UpdatePaused.With(u.Way("revision "), u.Reason))
	case u != nil && u.Phase == v1alpha1.UpdateRolledBack:
		kube.Mark(pool, v1alpha1.UpdatedCondition, catalog.UpdateRevoked.With(u.Way("revision "), u.Reason))
	case step.Updated && t.former && kube.IsProgress(t.invalid): // the last result stays until it is known whether the template is refused
	case step.Updated && t.former:
		kube.Mark(pool, v1alpha1.UpdatedCondition, kube.CausesOf(t.invalid)...)
	case step.Updated:
		conditions.MarkTrue(pool, v1alpha1.UpdatedCondition, v1alpha1.SucceededReason, "revision %s", t.revision)
	default:
		kube.Mark(pool, v1alpha1.UpdatedCondition, catalog.UpdateRolling.With(u.Phase, u.Way("revision "), u.Reason))
	}
}

// rolledBack returns the outcome of an update that was rolled back; nil for other updates.
func rolledBack(u *v1alpha1.UpdateStatus, to string) error {
	if u == nil || u.Phase != v1alpha1.UpdateRolledBack {
		return nil
	}
	return kube.Stall(catalog.UpdateRolledBack.With(to, u.Reason))
}

// describeUpdate describes the progress of an update.
func describeUpdate(u *v1alpha1.UpdateStatus) string {
	return fmt.Sprintf("%s %s: %s", u.Phase, u.Way("revision "), u.Reason)
}

// phaseKey identifies an update and its phase. If it changes, the status is written at once.
func phaseKey(u *v1alpha1.UpdateStatus) string {
	if u == nil {
		return ""
	}
	return fmt.Sprintf("%s/%s/%s", u.From, u.To, u.Phase)
}

// phaseEvent emits an event for a new phase.
func (r *Reconciler) phaseEvent(pool *v1alpha1.RunnerPool, before, now *v1alpha1.UpdateStatus) {
	switch {
	case now == nil:
		r.Event(pool, corev1.EventTypeNormal, v1alpha1.SucceededReason, fmt.Sprintf("the update %s is done", before.Way("revision ")))
	case now.Phase == v1alpha1.UpdateRolledBack:
		r.Event(pool, corev1.EventTypeWarning, v1alpha1.RolledBackReason, describeUpdate(now))
	case now.Phase == v1alpha1.UpdateHeld:
		r.Event(pool, corev1.EventTypeNormal, v1alpha1.UpdateHeldReason, describeUpdate(now))
	default:
		r.Event(pool, corev1.EventTypeNormal, v1alpha1.ProgressingReason, describeUpdate(now))
	}
}

// trial remembers the runners with which a new template is tried, because the objects of runners that had a job are soon
// deleted. If the trial is lost, the update waits for other runners to succeed.
type trial struct {
	revision string
	seen     map[string]tried
	gone     []time.Time // start times of runners that had a job and are gone
}

// tried is a runner with which a new template is tried.
type tried struct {
	started time.Time
	job     bool // it has or had a job
	ended   bool
}

// after returns the trial of a revision with the current state of its runners.
func (t trial) after(revision string, list runnerList) trial {
	if t.revision != revision {
		t = trial{revision: revision}
	}
	next := trial{revision: revision, seen: map[string]tried{}, gone: slices.Clone(t.gone)}
	present := map[string]bool{}
	for _, x := range list {
		present[x.runner.Name] = true
		if now, ok := t.seen[x.runner.Name].after(x); ok && x.runner.Spec.Revision == revision {
			next.seen[x.runner.Name] = now
		}
	}
	for name, r := range t.seen {
		if r.job && !present[name] && len(next.gone) < maxTried {
			next.gone = append(next.gone, r.started)
		}
	}
	return next
}

// after returns the runner's state after another pass; false if the runner proves nothing about the template.
func (r tried) after(x observed) (tried, bool) {
	s := x.verdict.State
	r.ended = s == v1alpha1.RunnerFinished || s == v1alpha1.RunnerFailed
	r.job = r.job || s == v1alpha1.RunnerBusy || s == v1alpha1.RunnerFinished && !x.verdict.Settling
	if r.started.IsZero() {
		r.started = startOf(x)
	}
	return r, s != v1alpha1.RunnerPending && (r.job || s != v1alpha1.RunnerFailed)
}

// over returns the start times of the runners whose job is over.
func (t trial) over() []time.Time {
	list := slices.Clone(t.gone)
	for _, r := range t.seen {
		if r.job && r.ended {
			list = append(list, r.started)
		}
	}
	return list
}
