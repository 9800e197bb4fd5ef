// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package rollout plans how runners of a new template replace the runners of the previous
// template. It is pure: it takes the existing runners and returns which to create and remove.
//
//	Canary      a few runners have the new template, until they have run for the pause
//	Rolling     idle runners of previous templates end according to the strategy
//	Held        no runner ends, and new runners have the previous template
//	RolledBack  the new template's runners failed; the previous template is in force again
//
// If runners of both templates fail, the pool periodically tries one runner of each. The template of the first runner that
// succeeds stays in force.
//
// This package does not determine the number of runners or the accepted work: an update
// changes neither. It never removes a runner with a job.
package rollout

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Tolerated is the number of consecutive failures, caused by the new template itself, after which an update is rolled back.
const Tolerated = 3

// Runner holds the facts about one runner that a plan needs.
type Runner struct {
	Name string
	// Revision of the runner's template.
	Revision string
	State    v1alpha1.RunnerState
	// Settling is true if the runner has ended and GitHub still counts its job.
	Settling bool
	// Deleting is true if the runner is being removed or is about to be removed.
	Deleting bool
	// Started is the time when its container started; zero if it did not start.
	Started time.Time
	// Since is the time when it entered its state.
	Since time.Time
	// Persists is true if the runner outlives its job. Worked is the time when its last job ended; zero if it had none.
	Persists bool
	Worked   time.Time
}

// Record holds the failures of a revision's runners since one of them succeeded.
type Record struct {
	// Owned is the number of failures that the template itself caused.
	Owned int
	// Open is true while failures with permanent causes prevent new runners of the revision. Probe is true if one runner may
	// be created now nevertheless, to try the revision.
	Open, Probe bool
	// Paced is true while the pool waits before it creates more runners of the revision, because the last ones failed for causes that are
	// not the template's fault.
	Paced bool
	// First and Last are the times of the first and the last failure; zero without failures.
	First, Last time.Time
	// Message describes the failures, in a sentence without a full stop.
	Message string
}

// Input is the state from which a step of an update is planned.
type Input struct {
	// To is the revision of the spec's template.
	To string
	// Stored is the revision in the pool's status: To, or the revision of the spec's previous template. It is "" if the status
	// is lost.
	Stored string
	// State of the update in the status; nil for none.
	State *v1alpha1.UpdateStatus
	// Bounds of the update.
	Bounds Bounds
	// Hold is the reason why the update must not proceed, in a sentence without a full stop; "" if it may proceed.
	Hold string
	// Denied is the reason why To must have no new runners, in the same form; "" if it may have new runners.
	Denied string
	// Desired is the number of runners that the pool should have. JobsKnown is false until the pool's demand is known; until
	// then, no runner ends.
	Desired   int32
	JobsKnown bool
	Runners   []Runner
	// Usable lists the revisions that can have new runners: they are stored, and policies
	// allow them.
	Usable []string
	// Records by revision. A revision without failures may be absent.
	Records map[string]Record
	// Tried lists the start times of the runners of To that had a job and have ended.
	Tried []time.Time
	// Well is the time after which an idle runner counts as successful.
	Well time.Duration
	Now  time.Time
}

// Plan is the next step of an update.
type Plan struct {
	// State of the update for the status; nil without an update.
	State *v1alpha1.UpdateStatus
	// Updated is true if the update has no runner left to replace.
	Updated bool
	// InForce is the revision that runners should have. Runners of other revisions are outdated.
	InForce string
	// New is the number of runners of the spec's revision that may be created now. Rest is the revision of all further new
	// runners.
	New  int32
	Rest string
	// Try is the revision of the first new runner, which may be created even while failures prevent new runners of Rest; ""
	// for none.
	Try string
	// End lists the runners without a job to remove now, in order.
	End []string
	// Extra is the number of runners to have above the desired number, and Surge how many of
	// them may be above the pool's limit. Package scaling uses both.
	Extra, Surge int32
	// LookAgain is the time after which the plan may change although nothing happens; 0
	// for none.
	LookAgain time.Duration

	to string
}

// Of returns the revision of the i-th runner that this step creates, counting from 0.
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

// update is an update while Next plans its next step.
type update struct {
	Input
	from   string
	before v1alpha1.UpdatePhase // "" for a new update
	phase  v1alpha1.UpdatePhase
	reason string
	next   time.Duration // until the phase may change
	counts counts        // in relation to the revision in force
}

// counts holds numbers of runners in relation to one revision.
type counts struct {
	starting int32    // of the revision
	usable   int32    // of the revision: starting, idle or busy
	running  int32    // that will stay: idle runners of the revision, and all runners with a job
	supply   int32    // usable runners of all revisions
	ending   int32    // without a job, and already being removed
	others   []Runner // without a job, of other revisions
	later    int      // persistent, of other revisions and with a job: to be replaced after the job
}

// count counts the runners in relation to a revision. During the canary phase, an idle runner of the revision counts as
// starting until it has run for the time Well.
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

// later returns 1 for a runner of another revision that outlives its current job and must be replaced after it, and
// otherwise 0.
func (r *Runner) later(revision string) int {
	if r.Persists && r.State == v1alpha1.RunnerBusy && r.Revision != revision {
		return 1
	}
	return 0
}

// left returns the time until an idle runner counts as successful, and lowers u.next to that time.
func (u *update) left(r Runner) time.Duration {
	left := r.Started.Add(u.Well).Sub(u.Now)
	if left > 0 && (u.next == 0 || left < u.next) {
		u.next = left
	}
	return max(0, left)
}

// step plans the actions of the phase.
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

// roll replaces the runners of previous templates according to the strategy. While failures prevent or delay new runners of
// the new template, new runners use the previous template instead, provided that its runners do not fail as well.
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

// tried returns how many of n new runners may use the new template. While its runners fail, this is 0, or 1 if a probe is
// due.
func (u *update) tried(n int32) int32 {
	switch r := u.Records[u.To]; {
	case r.Paced, r.Open && !r.Probe:
		return 0
	case r.Open:
		return min(n, 1)
	}
	return n
}

// replace removes idle runners of other revisions as runners of the revision in force start. room is how many more runners
// of that revision may be created now. The number of available runners never falls below the minimum, and the total never
// exceeds the surge.
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

// endWorked removes runners of other revisions that have completed a job since the current phase of the update began.
func (u *update) endWorked(p *Plan) {
	for _, r := range sorted(u.counts.others) {
		if u.State != nil && r.Persists && r.Worked.After(u.State.Since.Time) {
			p.End = append(p.End, r.Name)
		}
	}
}

// extra returns the number of runners to have above the desired number. end is how many more runners end now, and room how
// many may be created. The result includes runners above the desired number that are already starting. Runners that are
// being removed count against the surge.
func (u *update) extra(end, room int64) int32 {
	if u.Desired == 0 {
		return 0
	}
	c := &u.counts
	coming, beyond := room, int64(c.supply)-end-int64(u.Desired)
	if beyond < 0 {
		coming += beyond // new runners first fill the gap up to the desired number
	} else {
		coming += min(int64(c.starting), beyond)
	}
	return int32(max(0, min(int64(u.Bounds.MaxSurge)-int64(c.ending)-end, int64(len(c.others))-end, coming))) //nolint:gosec // at most MaxSurge
}

// endStarting removes starting runners of a template that was rolled back, unless runners of the previous template fail as
// well. In that case, the pool tries both templates.
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

// underWay returns the number of existing runners above the desired number that the surge allows. A held update keeps them.
func (u *update) underWay() int32 {
	if u.Desired == 0 {
		return 0
	}
	return max(0, min(u.counts.supply-u.Desired, u.Bounds.MaxSurge, u.counts.usable))
}

// isOver reports whether the update is complete: all replaceable runners are replaced, and the previous
// template is no longer needed for a rollback.
func (u *update) isOver(p *Plan) bool {
	if u.phase != v1alpha1.UpdateRolling || !p.Updated || len(p.End) > 0 {
		return false
	}
	return !u.canGoBack() || u.didWell(p)
}

// didWell reports whether a runner of the new template succeeded. It also sets p.LookAgain to the time after which this may
// change.
func (u *update) didWell(p *Plan) bool {
	well := u.hasWorked()
	p.LookAgain = u.next
	return well
}

// hasWorked reports whether a runner of the new template had a job, or has run idle for the time Well. For an idle runner
// that has not, it lowers u.next to the remaining time.
func (u *update) hasWorked() bool {
	well := len(u.Tried) > 0
	for _, r := range u.Runners {
		ours := r.Revision == u.To
		well = well || ours && (r.State == v1alpha1.RunnerBusy || r.Settling || r.State == v1alpha1.RunnerIdle && u.left(r) == 0)
	}
	return well
}

// pick returns the names of the first n runners of other revisions to remove.
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

// sorted orders runners by removal: starting runners first, then the longest in their state,
// then by name.
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
