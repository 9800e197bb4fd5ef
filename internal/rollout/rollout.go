// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package rollout plans how runners of a former template are replaced by those of a new
// one. It is pure: what there is in, what may be made and what ends out.
//
//	Canary      a few runners of the new template, until they did well for the pause
//	Rolling     idle runners of former templates end as the strategy has it
//	Held        nothing ends, and new runners are made from the former template
//	RolledBack  the new template's runners failed, the former is in force again
//
// If runners of both templates fail, one runner of each is tried periodically. The first that does well decides.
//
// How many runners there are is not decided here, nor how much work is accepted: an
// update changes neither. A runner with a job is never ended.
package rollout

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Tolerated is how many runners of a template may fail in a row, for causes that the
// template owns, before the former one is in force again.
const Tolerated = 3

// Runner is what a plan needs to know of one runner.
type Runner struct {
	Name string
	// Revision of the template that it was made from.
	Revision string
	State    v1alpha1.RunnerState
	// Settling is true of a runner that ended with a job that GitHub still counts.
	Settling bool
	// Deleting is true of a runner that is being ended already, or is about to be.
	Deleting bool
	// Started is when its container began to run; zero if it didn't.
	Started time.Time
	// Since is when it came into its state.
	Since time.Time
	// Persists is true of a runner that its job doesn't end, and Worked is when the last one was over; zero if it had none.
	Persists bool
	Worked   time.Time
}

// Record has the failures of a revision's runners since one of them did well.
type Record struct {
	// Owned counts those whose cause the template owns.
	Owned int
	// Open is true when they are so many, of whatever permanent cause, that no runners of
	// the revision are made; Probe when one may be tried now nevertheless.
	Open, Probe bool
	// Paced is true while no runner of the revision may be made, because the last ones failed for causes that are not the template's.
	Paced bool
	// First and Last are when the first and the last of them failed; zero if none did.
	First, Last time.Time
	// Message says what failed, in a sentence without a full stop.
	Message string
}

// Input is the state that a step of an update is planned on.
type Input struct {
	// To is the revision of the spec's template.
	To string
	// Stored is the revision that the status has: of the template of the spec before, or To.
	// Empty if the status is lost.
	Stored string
	// State of the update as the status has it; nil for none.
	State *v1alpha1.UpdateStatus
	// Bounds of the update.
	Bounds Bounds
	// Hold is why the update may go no further, in a sentence without a full stop; "" if it may.
	Hold string
	// Denied is why no runners may be made of To any more, alike; "" if they may.
	Denied string
	// Desired number of runners, and whether GitHub was heard: until then nothing ends.
	Desired   int32
	JobsKnown bool
	Runners   []Runner
	// Usable are revisions that runners can be made from: those that are stored, and that
	// policies allow.
	Usable []string
	// Records by revision. One without failures may be absent.
	Records map[string]Record
	// Tried are when runners of To began to run that had a job and are gone.
	Tried []time.Time
	// Well is how long an idle runner has to last to count as one in good health.
	Well time.Duration
	Now  time.Time
}

// Plan is the next step of an update.
type Plan struct {
	// State of the update for the status; nil when there is none (any more).
	State *v1alpha1.UpdateStatus
	// Updated is true when no runner is left that the update has yet to replace.
	Updated bool
	// InForce is the revision that runners are to be of; those of others are outdated.
	InForce string
	// New is how many runners may be made of the spec's revision now, and Rest the revision
	// that all further ones are made of.
	New  int32
	Rest string
	// Try is the revision of the first runner, which may be made even while runners of Rest are held back for their failures; "" for none.
	Try string
	// End names runners without a job to end now, in order.
	End []string
	// Extra is how many runners to have beyond the desired number, and Surge how many more
	// than their bound there may be meanwhile: for scaling.
	Extra, Surge int32
	// LookAgain is the time after which the plan may be another though nothing happens; 0
	// for none.
	LookAgain time.Duration

	to string
}

// Of returns the revision that the i-th runner made in this step is made of, from 0.
func (p Plan) Of(i int32) string {
	switch {
	case i == 0 && p.Try != "":
		return p.Try
	case i < p.New:
		return p.to
	}
	return p.Rest
}

// Next plans the next step.
func Next(in Input) Plan {
	u := begin(in)
	if u == nil {
		return Plan{Updated: true, InForce: in.To, Rest: in.To, to: in.To}
	}
	u.enter()
	p := u.step()
	if !in.JobsKnown {
		p.End, p.Extra, p.Surge = nil, 0, 0
	}
	p.to, p.State = in.To, u.status(&p)
	return p
}

// update is the change under way, as one step sees it.
type update struct {
	Input
	from   string
	before v1alpha1.UpdatePhase // "" for a new update
	phase  v1alpha1.UpdatePhase
	reason string
	next   time.Duration // until the phase may change
	counts counts        // from the side of the revision in force
}

// counts has the runners from one revision's side.
type counts struct {
	starting int32    // of the revision
	usable   int32    // of the revision: starting, idle or busy
	running  int32    // that are there to stay: idle ones of the revision, and all with a job
	supply   int32    // usable runners of all revisions
	ending   int32    // without a job, and ended already
	others   []Runner // without a job, of other revisions
	later    int      // with a job that doesn't end them, of other revisions
}

// count counts the runners from the side of a revision. While canaries are tried, an idle one is believed only when it
// has lasted.
func (u *update) count(revision string) counts {
	var c counts
	for _, r := range u.Runners {
		ours := r.Revision == revision
		waits := r.State == v1alpha1.RunnerPending || r.State == v1alpha1.RunnerIdle
		switch {
		case r.Settling, r.State == v1alpha1.RunnerBusy:
			c.running++
			c.supply++
			if ours && !r.Settling {
				c.usable++
			}
			c.later += r.later(revision)
		case !waits: // failed or finished
		case r.Deleting:
			c.ending++
		case !ours:
			c.supply++
			c.others = append(c.others, r)
		default:
			c.supply++
			c.usable++
			if r.State == v1alpha1.RunnerPending || u.phase == v1alpha1.UpdateCanary && u.left(r) > 0 {
				c.starting++
			} else {
				c.running++
			}
		}
	}
	return c
}

// later is 1 of a runner that is to be replaced after its job, which doesn't end it.
func (r *Runner) later(revision string) int {
	if r.Persists && r.State == v1alpha1.RunnerBusy && r.Revision != revision {
		return 1
	}
	return 0
}

// left is the time until an idle runner will have lasted; it is looked at again then.
func (u *update) left(r Runner) time.Duration {
	left := r.Started.Add(u.Well).Sub(u.Now)
	if left > 0 && (u.next == 0 || left < u.next) {
		u.next = left
	}
	return max(0, left)
}

// step says what to do in the phase.
func (u *update) step() Plan {
	u.counts = u.count(u.inForce())
	p := Plan{InForce: u.inForce(), Rest: u.To}
	if u.canGoBack() && u.phase != v1alpha1.UpdateRolling {
		p.Rest = u.from
	}
	switch u.phase {
	case v1alpha1.UpdateHeld:
		p.Extra = u.underWay()
		p.Surge = p.Extra
	case v1alpha1.UpdateRolledBack:
		u.endStarting(&p)
		u.replace(&p, math.MaxInt32)
	case v1alpha1.UpdateCanary:
		p.New = u.tried(max(0, u.Bounds.Canary-u.counts.usable))
		u.replace(&p, p.New)
	default:
		u.roll(&p)
	}
	p.Try, p.LookAgain = u.retried(), u.next
	return p
}

// roll replaces the runners of former templates as the strategy has it. While those of the
// new one can't be made, the former makes up for them and nothing ends.
func (u *update) roll(p *Plan) {
	room := int32(math.MaxInt32)
	if record := u.Records[u.To]; (record.Open || record.Paced) && u.isSound() && !u.bothFail() {
		p.New, p.Rest = u.tried(room), u.from
		room = p.New
	}
	switch {
	case u.Bounds.Strategy != v1alpha1.Recreate:
		u.replace(p, room)
	case !u.Records[u.To].Open:
		p.End = u.pick(int64(len(u.counts.others)))
	}
	p.Updated = len(u.counts.others) == len(p.End) && u.counts.later == 0
}

// tried bounds the number of runners to make of a template that fails: one now and then.
func (u *update) tried(n int32) int32 {
	switch r := u.Records[u.To]; {
	case r.Paced, r.Open && !r.Probe:
		return 0
	case r.Open:
		return min(n, 1)
	}
	return n
}

// replace ends idle runners of other revisions as those of the revision in force run, of
// which some more may be made now: never below what must be available, never above the
// surge.
func (u *update) replace(p *Plan, room int32) {
	if u.Bounds.Strategy == v1alpha1.OnIdle {
		u.endWorked(p)
		return
	}
	c := &u.counts
	var end []string
	if !u.Records[u.inForce()].Open {
		missing := min(int64(u.Bounds.MaxUnavailable), int64(c.starting)+int64(room))
		needed := max(0, int64(u.Desired)-missing-int64(c.running))
		end = u.pick(int64(len(c.others)) - needed)
	}
	if len(c.others) > 0 || c.ending > 0 {
		p.Surge = max(0, u.Bounds.MaxSurge)
	}
	p.End = append(p.End, end...)
	p.Extra = u.extra(int64(len(end)), int64(room))
}

// endWorked ends those of other revisions that had a job since the update began, and that it didn't end.
func (u *update) endWorked(p *Plan) {
	for _, r := range sorted(u.counts.others) {
		if u.State != nil && r.Persists && r.Worked.After(u.State.Since.Time) {
			p.End = append(p.End, r.Name)
		}
	}
}

// extra is how many runners to have beyond the desired number when so many more end now,
// and so many may be made: those that start beyond it already, and those that may be made
// beyond it. What is being ended takes room too.
func (u *update) extra(end, room int64) int32 {
	if u.Desired == 0 {
		return 0
	}
	c := &u.counts
	coming, beyond := room, int64(c.supply)-end-int64(u.Desired)
	if beyond < 0 {
		coming += beyond // the desired number takes them
	} else {
		coming += min(int64(c.starting), beyond)
	}
	return int32(max(0, min(int64(u.Bounds.MaxSurge)-int64(c.ending)-end, int64(len(c.others))-end, coming))) //nolint:gosec // at most MaxSurge
}

// endStarting ends the runners of a template that failed before they start, unless the previous template fails as well: then they are tried.
func (u *update) endStarting(p *Plan) {
	if u.mayRetry() {
		return
	}
	c := &u.counts
	starting := func(r Runner) bool { return r.Revision == u.To && r.State == v1alpha1.RunnerPending }
	for _, r := range sorted(c.others) {
		if starting(r) {
			p.End = append(p.End, r.Name)
			c.supply, c.ending = c.supply-1, c.ending+1
		}
	}
	c.others = slices.DeleteFunc(c.others, starting)
}

// underWay is how many runners there are beyond the desired number because of the surge: an
// update that is held keeps them.
func (u *update) underWay() int32 {
	if u.Desired == 0 {
		return 0
	}
	return max(0, min(u.counts.supply-u.Desired, u.Bounds.MaxSurge, u.counts.usable))
}

// isOver reports whether nothing is left to do: all is replaced that may be, and the former
// template is not needed any more to go back to.
func (u *update) isOver(p *Plan) bool {
	if u.phase != v1alpha1.UpdateRolling || !p.Updated || len(p.End) > 0 {
		return false
	}
	return !u.canGoBack() || u.didWell(p)
}

// didWell reports whether a runner of the new template has worked. Otherwise it has the plan looked at again when one will have.
func (u *update) didWell(p *Plan) bool {
	well := u.hasWorked()
	p.LookAgain = u.next
	return well
}

// hasWorked reports whether a runner of the new template had a job, or waited for one in good health. Otherwise it notes when one will have.
func (u *update) hasWorked() bool {
	well := len(u.Tried) > 0
	for _, r := range u.Runners {
		ours := r.Revision == u.To
		well = well || ours && (r.State == v1alpha1.RunnerBusy || r.Settling || r.State == v1alpha1.RunnerIdle && u.left(r) == 0)
	}
	return well
}

// pick names the first n runners of other revisions to end.
func (u *update) pick(n int64) []string {
	if n <= 0 {
		return nil
	}
	var names []string
	for _, r := range sorted(u.counts.others)[:min(n, int64(len(u.counts.others)))] {
		names = append(names, r.Name)
	}
	return names
}

// sorted orders runners by who ends first: those still starting, the longest in their
// state, then by name.
func sorted(runners []Runner) []Runner {
	list := slices.Clone(runners)
	slices.SortFunc(list, func(a, b Runner) int {
		if a.State != b.State {
			if a.State == v1alpha1.RunnerPending {
				return -1
			}
			return 1
		}
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Name, b.Name))
	})
	return list
}
