// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/rollout"
	"github.com/corral-dev/corral/internal/scaling"
)

// pausedReason is why an update that a person paused goes no further.
const pausedReason = "paused by spec.update.paused"

// maxTried bounds how many runners are remembered that a new template was tried with.
const maxTried = 256

// care is what policies make of an update. The zero value leaves it as declared.
type care struct {
	// hold is why it may go no further, in a sentence without a full stop; "" if it may.
	hold string
	// asked are the bounds that policies were told, answer those that they gave; both are the
	// zero value if there was no answer.
	asked, answer rollout.Bounds
}

// rollOut plans the next step of an update, and has scaling take it into account. It needs
// the limits.
func (x *run) rollOut(in *scaling.Input) {
	desired := scaling.Desired(*in)
	bounds, hold := rollout.Declared(x.pool.Spec.Update, desired), x.care.hold
	if x.care.answer != (rollout.Bounds{}) {
		bounds = bounds.Narrowed(x.care.asked, x.care.answer)
	}
	if x.pool.Spec.Update.Paused {
		hold = pausedReason
	}
	runners, denied := x.crew(), ""
	if to := x.pool.Status.Revision; x.barred[to] {
		denied = "policies deny revision " + to
	}
	x.step = rollout.Next(rollout.Input{
		To: x.pool.Status.Revision, Stored: x.stored, State: x.pool.Status.Update, Bounds: bounds, Hold: hold, Denied: denied,
		Desired: desired, JobsKnown: in.JobsKnown, Runners: runners, Usable: x.usable(), Records: x.records(),
		Tried: x.recall.trial.over(), Well: x.pool.Spec.Deadlines.GetConnect(), Now: x.Now(),
	})
	x.was, x.pool.Status.Update = x.pool.Status.Update, x.step.State
	if in.JobsKnown {
		x.step.End = append(x.step.End, x.strays()...)
	}
	in.Extra, in.Surge = x.step.Extra, x.step.Surge
	ends := make(map[string]bool, len(x.step.End))
	for _, name := range x.step.End {
		ends[name] = true
	}
	for i := range in.Runners {
		in.Runners[i].Outdated = runners[i].Revision != x.step.InForce
		in.Runners[i].Deleting = in.Runners[i].Deleting || ends[in.Runners[i].Name]
	}
	if x.barred[x.step.Rest] {
		in.Holds = append(in.Holds, scaling.Hold{Reason: "policies deny the template"})
	}
	x.holdBack(in)
	x.lookAgain(x.step.LookAgain)
}

// crew lists the runners as the planner sees them, in the order of x.runners. Those of a
// scale set that GitHub has no more are of no revision: they can get no job.
func (x *run) crew() []rollout.Runner {
	x.recall.trial.look(x.pool.Status.Revision, x.runners)
	list := make([]rollout.Runner, 0, len(x.runners))
	for _, o := range x.runners {
		r := rollout.Runner{
			Name: o.runner.Name, Revision: o.runner.Spec.Revision, State: o.verdict.State, Settling: o.verdict.Settling,
			Deleting: !o.runner.DeletionTimestamp.IsZero(), Started: startOf(o), Since: o.verdict.Since,
		}
		if known, ok := x.recall.trial.seen[r.Name]; ok {
			r.Started = known.started
		}
		if x.isStray(o.runner) {
			r.Revision, r.Deleting = "", true
		}
		list = append(list, r)
	}
	return list
}

// startOf is when a runner began to run; zero if it didn't. That of a busy one may be told
// late, by when its job began.
func startOf(o observed) time.Time {
	switch {
	case o.runner.Status.StartedAt != nil:
		return o.runner.Status.StartedAt.Time
	case o.verdict.State == v1alpha1.RunnerPending, o.verdict.State == v1alpha1.RunnerFailed:
		return time.Time{}
	}
	return o.verdict.Since
}

// strays names such runners, as far as they have no job and aren't being ended.
func (x *run) strays() []string {
	var names []string
	for _, o := range x.runners {
		waits := o.verdict.State == v1alpha1.RunnerPending || o.verdict.State == v1alpha1.RunnerIdle
		if waits && x.isStray(o.runner) && o.runner.DeletionTimestamp.IsZero() {
			names = append(names, o.runner.Name)
		}
	}
	return names
}

// know lists the revisions that are stored, with their templates.
func (x *run) know(ctx context.Context) error {
	list := &appsv1.ControllerRevisionList{}
	if err := x.Client.List(ctx, list, client.InNamespace(x.key.Namespace), client.MatchingLabels{v1alpha1.PoolLabel: x.pool.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing revisions: %w", err)
	}
	x.known = map[string][]byte{}
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], x.pool) {
			x.known[list.Items[i].Name] = list.Items[i].Data.Raw
		}
	}
	if x.adopted != "" { // the cache may not show it yet
		x.known[x.adopted] = x.pool.Spec.Template.Raw
	}
	return nil
}

// usable lists the revisions that runners can be made from.
func (x *run) usable() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(x.known)) {
		if !x.barred[name] {
			names = append(names, name)
		}
	}
	return names
}

// records tells the planner how the runners of the revisions did.
func (x *run) records() map[string]rollout.Record {
	records := map[string]rollout.Record{}
	for revision, c := range x.recall.circuits {
		if c.Failures == 0 {
			continue
		}
		r := rollout.Record{Owned: c.Owned, Open: c.Open(), First: c.First, Last: c.Last, Words: c.Row()}
		if r.Open {
			hold, next := c.Hold(0, 0, x.probes(c), x.Now())
			r.Probe = hold.Create > 0
			x.lookAgain(next)
		}
		records[revision] = r
	}
	return records
}

// change is what corral.update is asked about; false if no update is under way that could
// be held. The numbers are for the runners that were desired last.
func (x *run) change() (policy.Change, rollout.Bounds, bool) {
	u, to := x.pool.Status.Update, x.pool.Status.Revision
	c := policy.Change{To: to}
	switch {
	case u != nil && u.To == to:
		c.From, c.Phase, c.Since = u.From, string(u.Phase), u.Since.UnixNano()
	case u != nil:
		c.From = u.From
	default:
		c.From = x.former()
	}
	if c.From == "" || c.From == to || c.Phase == string(v1alpha1.UpdateRolledBack) {
		return policy.Change{}, rollout.Bounds{}, false
	}
	for _, o := range x.runners {
		alive := o.verdict.State == v1alpha1.RunnerPending || o.verdict.State == v1alpha1.RunnerIdle || o.verdict.State == v1alpha1.RunnerBusy
		if alive && o.runner.Spec.Revision == to {
			c.Updated++
		}
	}
	var desired int32
	if d := x.pool.Status.Decision; d != nil {
		desired = d.Desired
	}
	b := rollout.Declared(x.pool.Spec.Update, desired)
	c.Strategy, c.MaxSurge, c.MaxUnavailable, c.Canary = string(b.Strategy), b.MaxSurge, b.MaxUnavailable, b.Canary
	return c, b, true
}

// former is the revision that an update without a state would come from, as far as runners
// or the status tell; "" if none is to come.
func (x *run) former() string {
	to := x.pool.Status.Revision
	if x.stored != "" && x.stored != to {
		return x.stored
	}
	for _, o := range x.runners {
		busy := o.verdict.State == v1alpha1.RunnerBusy && x.stored == ""
		waits := o.verdict.State == v1alpha1.RunnerPending || o.verdict.State == v1alpha1.RunnerIdle
		if (waits || busy) && o.runner.Spec.Revision != to {
			return o.runner.Spec.Revision
		}
	}
	return ""
}

// takeBack leaves the revision in status as it was if the pass ended before an update to the
// new one was planned: otherwise what it comes from would be forgotten.
func (x *run) takeBack() {
	if x.step.InForce == "" && x.stored != "" {
		x.pool.Status.Revision = x.stored
	}
}

// tellUpdate sets the condition that says where the update is, and tells of a change.
func (x *run) tellUpdate() {
	before, now := x.was, x.step.State
	to := x.pool.Status.Revision
	switch {
	case now != nil && now.Phase == v1alpha1.UpdateHeld:
		conditions.MarkFalse(x.pool, v1alpha1.UpdatedCondition, v1alpha1.UpdateHeldReason, "%s", words(now))
	case now != nil && now.Phase == v1alpha1.UpdateRolledBack:
		conditions.MarkFalse(x.pool, v1alpha1.UpdatedCondition, v1alpha1.RolledBackReason, "%s", words(now))
		if x.invalid == nil {
			x.invalid = kube.Stall(v1alpha1.RolledBackReason, "revision %s is rolled back: %s", to, now.Reason)
		}
	case x.step.Updated:
		conditions.MarkTrue(x.pool, v1alpha1.UpdatedCondition, v1alpha1.SucceededReason, "revision %s", to)
	default:
		conditions.MarkFalse(x.pool, v1alpha1.UpdatedCondition, v1alpha1.ProgressingReason, "%s", words(now))
	}
	if gist := gistOf(now); gist != gistOf(before) {
		x.newPhase = true
		if gist != x.recall.told {
			x.tellPhase(before, now)
		}
		x.recall.told = gist
	}
}

// words say where an update is.
func words(u *v1alpha1.UpdateStatus) string {
	return fmt.Sprintf("%s from revision %s to %s: %s", u.Phase, u.From, u.To, u.Reason)
}

// gistOf is what makes a phase another one.
func gistOf(u *v1alpha1.UpdateStatus) string {
	if u == nil {
		return ""
	}
	return fmt.Sprintf("%s/%s/%s", u.From, u.To, u.Phase)
}

// tellPhase tells of a phase that begins, in an event.
func (x *run) tellPhase(before, now *v1alpha1.UpdateStatus) {
	switch {
	case now == nil:
		x.Event(x.pool, corev1.EventTypeNormal, v1alpha1.SucceededReason, fmt.Sprintf("the update from revision %s to %s is done", before.From, before.To))
	case now.Phase == v1alpha1.UpdateRolledBack:
		x.Event(x.pool, corev1.EventTypeWarning, v1alpha1.RolledBackReason, words(now))
	case now.Phase == v1alpha1.UpdateHeld:
		x.Event(x.pool, corev1.EventTypeNormal, v1alpha1.UpdateHeldReason, words(now))
	default:
		x.Event(x.pool, corev1.EventTypeNormal, v1alpha1.ProgressingReason, words(now))
	}
}

// trial remembers the runners that a new template is tried with: the objects of those that
// had a job are soon gone. Without it, others are tried.
type trial struct {
	revision string
	seen     map[string]tried
	gone     []time.Time // when those began to run that had a job and are gone
}

// tried is one such runner.
type tried struct {
	started time.Time
	job     bool // it has or had one
	ended   bool
}

// look takes in how the runners of a revision are.
func (t *trial) look(revision string, runners []observed) {
	if t.revision != revision {
		*t = trial{revision: revision}
	}
	before := t.seen
	t.seen = map[string]tried{}
	for _, o := range runners {
		known := before[o.runner.Name]
		delete(before, o.runner.Name)
		if now, ok := known.after(o); ok && o.runner.Spec.Revision == revision {
			t.seen[o.runner.Name] = now
		}
	}
	for _, r := range before {
		if r.job && len(t.gone) < maxTried {
			t.gone = append(t.gone, r.started)
		}
	}
}

// after is what is known of a runner after another look; false if it tells nothing.
func (r tried) after(o observed) (tried, bool) {
	s := o.verdict.State
	r.ended = s == v1alpha1.RunnerFinished || s == v1alpha1.RunnerFailed
	r.job = r.job || s == v1alpha1.RunnerBusy || s == v1alpha1.RunnerFinished
	if r.started.IsZero() {
		r.started = startOf(o)
	}
	return r, s != v1alpha1.RunnerPending && (r.job || s != v1alpha1.RunnerFailed)
}

// over lists when those began to run whose job is over.
func (t *trial) over() []time.Time {
	list := append([]time.Time(nil), t.gone...)
	for _, r := range t.seen {
		if r.job && r.ended {
			list = append(list, r.started)
		}
	}
	return list
}
