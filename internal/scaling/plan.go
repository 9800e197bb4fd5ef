// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package scaling decides how many runners a pool should have, which to end and
// how much work to accept. It is pure: numbers in, numbers and their reason out.
//
//	desired  = max(jobs, min(max, max(min, total, jobs+idle)))   accepted jobs are served even above max, unless JobsWait
//	supply   = usable runners: starting, idle, busy, and ended ones GitHub still counts
//	create   = desired + extra − supply, within max(max, jobs) + surge
//	drain    = surplus runners without a job that are past their protection window
//	announce = max(runners with a job, max): a total, never derived from desired;
//	           less while something holds the pool back: its health, or a quota
//
// Extra and surge are what an update of the template may take meanwhile; which runners
// it replaces, and by which, is not decided here.
package scaling

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/demand"
)

// Protection is how long a runner without a job is kept after its creation, or
// after it became idle, before it may be ended as surplus: a job may be on its way.
const Protection = 30 * time.Second

// Runner is what a decision needs to know of one runner.
type Runner struct {
	Name  string
	State v1alpha1.RunnerState
	// Settling is true of a runner that ended while GitHub's count of jobs still
	// includes its job: it fills its place until the count is corrected.
	Settling bool
	// Outdated is true of a runner made from another template than new ones are: of
	// idle runners that are surplus, it ends first.
	Outdated bool
	// Deleting is true of a runner that is being ended already, or is about to be.
	Deleting bool
	// Since is when the runner came into its state.
	Since time.Time
}

// Input is the state a decision is taken on.
type Input struct {
	// Limits bound the number of runners.
	Limits v1alpha1.Scale
	// JobsWait has jobs wait that were accepted before the max fell; otherwise they are served.
	JobsWait bool
	// IdleReason says why Limits.Idle is another than declared; "" for nothing to say.
	IdleReason string
	// Suspended accepts no new jobs and keeps only the runners that accepted ones need. SuspendedReason says why, if not by spec.stopPolicy.
	Suspended       bool
	SuspendedReason string
	// Held accepts no new jobs, and keeps min and idle runners ready.
	Held bool
	// Jobs assigned to the pool and not finished: they are served, whatever becomes of Max.
	Jobs int32
	// Demand is what all sources together ask for. Until it is known, nothing is grown or ended.
	Demand demand.Demand
	// Offered is how many jobs GitHub has for the pool beyond those that are assigned. It is of no use while the pool takes in more: the count
	// can be old.
	Offered int32
	// Pace puts another number in the place of the desired one; nil for none.
	Pace    *Pace
	Runners []Runner
	// Saturated is true if jobs waited for room at the last decision.
	Saturated bool
	// Holds keep the plan below what the limits allow, for reasons of health or quota.
	Holds []Hold
	// Extra is how many runners to have beyond the desired number while an update replaces
	// others, at most Surge.
	Extra int32
	// Surge is how many more runners than their limit there may be meanwhile, those that are
	// being ended included.
	Surge int32
	Now   time.Time
}

// Pace is a number that is desired for now, on the way to the one that was decided.
type Pace struct {
	Desired int32
	// Reason in one sentence without a full stop.
	Reason string
}

// Hold keeps a plan back for a reason outside the limits.
type Hold struct {
	// Announce is the most jobs to accept in total; runners with a job are always covered.
	Announce int32
	// Create is the most runners to create now.
	Create int32
	// Reason in one sentence without a full stop.
	Reason string
}

// Plan is what to do, and why.
type Plan struct {
	// Desired number of runners.
	Desired int32
	// Supply of usable runners now.
	Supply int32
	// Create this many runners.
	Create int32
	// Drain names the runners to end, in order.
	Drain []string
	// Announce is the most jobs GitHub may have assigned to the pool in total.
	Announce int32
	// Waiting is how many jobs wait because no more are accepted. Full is true if that is for the limit max alone.
	Waiting int32
	Full    bool
	// Reason for Desired in one sentence.
	Reason string
	// LookAgain is the time after which a runner leaves its protection window; 0 for none.
	LookAgain time.Duration
}

// Decide computes the plan for a pool.
func Decide(in Input) Plan {
	c := countRunners(in.Runners)
	wanted := wishOf(in)
	p := Plan{Desired: wanted.runners, Supply: c.supply, Announce: announce(in, c), Reason: wanted.reason}
	if !in.Demand.Known {
		return p
	}
	p.Create = creations(in, c, p.Desired)
	for _, h := range in.Holds {
		p.Announce = max(min(p.Announce, h.Announce), min(p.Announce, c.busy))
		p.Create = min(p.Create, h.Create)
		p.Reason += "; " + h.Reason
	}
	p = in.saturate(p, wanted.bounded)
	if !in.Demand.Keep {
		p.Drain, p.LookAgain = drains(in, c, p.Desired)
	}
	return p
}

// saturate returns the plan with how many jobs wait because no more are accepted. Bounded is true if its reason names max. A pool that was full stays so between the end of a job and the start of the next.
func (in Input) saturate(p Plan, bounded bool) Plan {
	known := max(0, in.Demand.Jobs-max(in.Jobs, p.Announce)) // by other sources
	offered := max(0, in.Offered)
	if in.Jobs < p.Announce && (!in.Saturated || in.Jobs == 0) {
		offered = 0
	}
	p.Waiting = max(known, offered)
	p.Full = p.Waiting > 0 && !in.Suspended && !in.Held && p.Announce >= in.Limits.Max
	if offered == 0 {
		return p
	}
	if p.Full && !bounded {
		p.Reason += fmt.Sprintf(": full (max %d)", in.Limits.Max)
	}
	p.Reason += fmt.Sprintf("; %d more wait on GitHub", offered)
	return p
}

// Desired is the number of runners that there should be, and what decided it. Until jobs are known it is what there is.
func Desired(in Input) (int32, string) {
	w := wishOf(in)
	return w.runners, w.reason
}

// wish is a number of runners, what decided it, and whether that is max.
type wish struct {
	runners int32
	reason  string
	bounded bool
}

func wishOf(in Input) wish {
	switch {
	case !in.Demand.Known:
		return wish{countRunners(in.Runners).supply, "no count of jobs: runners are neither started nor ended", false}
	case in.Pace == nil || in.Suspended:
		return unpaced(in)
	case in.Pace.Desired > in.most():
		return wish{in.most(), fmt.Sprintf("%s, bounded by max %d", in.Pace.Reason, in.Limits.Max), true}
	}
	return wish{in.Pace.Desired, in.Pace.Reason, false}
}

// counts sorts runners by what they are good for.
type counts struct {
	live    int32    // has or will have a pod that can work or is just ending
	busy    int32    // with a job
	running int32    // idle, busy, or settling
	supply  int32    // running, or starting
	ended   int32    // settling
	free    []Runner // without a job
}

func countRunners(runners []Runner) counts {
	var c counts
	for _, r := range runners {
		switch {
		case r.Settling:
			c.ended++
			c.supply++
			c.running++
		case r.State == v1alpha1.RunnerBusy:
			c.live++
			c.busy++
			c.supply++
			c.running++
		case r.State != v1alpha1.RunnerPending && r.State != v1alpha1.RunnerIdle:
			// Failed or finished: counts for nothing.
		case r.Deleting:
			c.live++ // its pod still takes room
		default:
			c.live++
			c.supply++
			c.free = append(c.free, r)
			if r.State == v1alpha1.RunnerIdle {
				c.running++
			}
		}
	}
	return c
}

// most is the most runners that there may be: accepted jobs are served even above max, unless JobsWait.
func (in Input) most() int32 {
	if in.JobsWait {
		return in.Limits.Max
	}
	return max(in.Limits.Max, in.Jobs)
}

// unpaced computes how many runners there should be at whatever pace.
func unpaced(in Input) wish {
	l := in.Limits
	if in.Suspended && in.JobsWait && in.Jobs > l.Max {
		return wish{l.Max, fmt.Sprintf("%s: serving %s; %s accepted before wait, by policy", cmp.Or(in.SuspendedReason, "draining"), jobs(l.Max), jobs(in.Jobs-l.Max)), false}
	}
	if in.Suspended {
		return wish{in.Jobs, fmt.Sprintf("%s: serving %s", cmp.Or(in.SuspendedReason, "draining"), jobs(in.Jobs)), false}
	}
	if in.Held { // jobs that it has not accepted are no reason to start runners
		in.Demand = demand.Demand{Reason: "on hold"}
	}
	counted := max(in.Jobs, in.Demand.Jobs)
	wanted := int32(min(int64(counted)+int64(l.Idle), math.MaxInt32))
	reason := jobs(counted) + because(in.Demand.Reason)
	if l.Idle > 0 {
		reason = fmt.Sprintf("%s + %d idle%s", reason, l.Idle, because(in.IdleReason))
	}
	if wanted < l.Min {
		wanted = l.Min
		reason = fmt.Sprintf("%s, raised to min %d", reason, l.Min)
	}
	if wanted < in.Demand.Total {
		wanted = in.Demand.Total
		reason = fmt.Sprintf("%s, raised to %d by %s", reason, in.Demand.Total, in.Demand.TotalReason)
	}
	bounded := wanted > l.Max
	if bounded {
		wanted = l.Max
		reason = fmt.Sprintf("%s, bounded by max %d", reason, l.Max)
	}
	if in.Jobs > wanted && in.JobsWait {
		return wish{wanted, fmt.Sprintf("%s; %s accepted before wait, by policy", reason, jobs(in.Jobs-wanted)), bounded}
	}
	if in.Jobs > wanted {
		return wish{in.Jobs, fmt.Sprintf("%s accepted before max fell to %d are served", jobs(in.Jobs), l.Max), true}
	}
	return wish{wanted, reason, bounded}
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return " (" + why + ")"
}

func jobs(n int32) string {
	if n == 1 {
		return "1 job"
	}
	return fmt.Sprintf("%d jobs", n)
}

// announce computes the capacity to announce. Runners with a job are always
// covered; a pool that is suspended or held announces nothing at all, so that no
// finished job is replaced by a new one.
func announce(in Input, c counts) int32 {
	if in.Suspended || in.Held {
		return 0
	}
	return max(c.busy, in.Limits.Max)
}

// extra is how many runners to have beyond the desired number.
func (in Input) extra() int64 { return int64(max(0, min(in.Extra, in.Surge))) }

func creations(in Input, c counts, desired int32) int32 {
	missing := int64(desired) + in.extra() - int64(c.supply)
	room := int64(in.most()) + int64(max(0, in.Surge)) - int64(c.live)
	return int32(min(max(0, min(missing, room)), math.MaxInt32))
}

// drains picks surplus runners without a job that are past their protection. Idle ones end
// only as far as running ones cover the desired number without them: one that starts
// yet doesn't stand in for them. Settling ones are no surplus: they have ended, and a job
// that GitHub still counts may be theirs.
func drains(in Input, c counts, desired int32) ([]string, time.Duration) {
	surplus := int64(c.supply-c.ended) - int64(desired) - in.extra()
	if surplus <= 0 {
		return nil, 0
	}
	ripe, next := ripen(c.free, in.Now)
	if int64(len(ripe)) >= surplus {
		next = 0
	}
	return pick(ripe, surplus, max(0, int64(c.running)-int64(desired))), next
}

// ripen splits off the runners past their protection window and says when the
// next one will be.
func ripen(runners []Runner, now time.Time) (ripe []Runner, next time.Duration) {
	for _, r := range runners {
		left := Protection - now.Sub(r.Since)
		if left <= 0 {
			ripe = append(ripe, r)
			continue
		}
		if next == 0 || left < next {
			next = left
		}
	}
	return ripe, next
}

// pick names the first n runners, of idle ones no more than some: those still starting
// before idle ones, outdated ones before others, the longest in their state first, then
// by name.
func pick(runners []Runner, n, idle int64) []string {
	sorted := slices.Clone(runners)
	slices.SortFunc(sorted, func(a, b Runner) int {
		return cmp.Or(
			cmp.Compare(place(a), place(b)), a.Since.Compare(b.Since), strings.Compare(a.Name, b.Name),
		)
	})
	var names []string
	for _, r := range sorted {
		if r.State == v1alpha1.RunnerIdle {
			idle--
		}
		if int64(len(names)) == n || idle < 0 {
			break
		}
		names = append(names, r.Name)
	}
	return names
}

// place is lower of runners that end first: of those still starting, and among them or not, of outdated ones.
func place(r Runner) (place int) {
	if r.State != v1alpha1.RunnerPending {
		place += 2
	}
	if !r.Outdated {
		place++
	}
	return place
}
