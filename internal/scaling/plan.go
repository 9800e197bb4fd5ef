// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package scaling decides how many runners a pool should have, which ones to remove, and how many jobs to accept. It is
// pure: it takes numbers and returns numbers with their reasons.
//
//	desired  = max(jobs, min(max, max(min, total, jobs+idle)))   accepted jobs are served even above max, unless JobsWait
//	supply   = usable runners: starting, idle, busy, and ended ones whose job GitHub still counts
//	create   = desired + extra − supply, within max(max, jobs) + surge
//	drain    = surplus runners without a job that are past their protection window
//	announce = max(runners with a job, max): a total, independent of desired;
//	           less while the pool's health or a quota holds it back
//
// Extra and surge are the additional runners that an update of the template may have. Package rollout decides which
// runners the update replaces.
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

// Protection is how long a runner without a job is kept after its creation, or after it became idle, before it may be
// removed as surplus, because a job may be on its way.
const Protection = 30 * time.Second

// Runner holds the facts about one runner that a decision needs.
type Runner struct {
	Name  string
	State v1alpha1.RunnerState
	// Settling is true for a runner that has ended while GitHub still counts its job. It counts as supply, so that the
	// pool does not replace it before GitHub corrects the count.
	Settling bool
	// Outdated is true for a runner with an old template. Among runners in the same state, Decide removes outdated ones
	// first.
	Outdated bool
	// Deleting is true for a runner that is being removed or is about to be removed.
	Deleting bool
	// Since is the time when the runner entered its state.
	Since time.Time
}

// Input is the state on which a decision is based.
type Input struct {
	// Limits of the number of runners.
	Limits v1alpha1.Scale
	// JobsWait is true if jobs that were accepted before the max fell must wait; otherwise they are served.
	JobsWait bool
	// IdleReason is the reason why Limits.Idle differs from the declared number; "" for none.
	IdleReason string
	// Suspended is true if the pool accepts no new jobs and keeps only the runners for accepted ones. SuspendedReason
	// is the reason if it is not spec.stopPolicy.
	Suspended       bool
	SuspendedReason string
	// Held is true if the pool accepts no new jobs, but keeps min and idle runners ready.
	Held bool
	// Jobs is the number of assigned and unfinished jobs. The pool serves them even above Max, unless JobsWait is true.
	Jobs int32
	// Demand is the combined demand of all sources. Until it is known, no runner is created or removed.
	Demand demand.Demand
	// Offered is the number of GitHub's jobs for the pool that are not assigned. Decide ignores it while the pool accepts
	// more jobs, because the count can be old.
	Offered int32
	// Pace, if not nil, replaces the desired number.
	Pace    *Pace
	Runners []Runner
	// Saturated is true if the pool was full at the last decision.
	Saturated bool
	// Holds keep the plan below its limits because of health or quotas.
	Holds []Hold
	// Extra is the number of runners to have above the desired number while an update replaces others, at most Surge.
	Extra int32
	// Surge is how many runners an update may have above the limit, including runners that are being
	// removed.
	Surge int32
	Now   time.Time
}

// Pace is the number of runners that the pool's scaling behavior allows at the moment, on the way to the desired
// number.
type Pace struct {
	Desired int32
	// Reason in one sentence without a full stop.
	Reason string
}

// Hold limits a plan because of the pool's health or a quota.
type Hold struct {
	// Announce is the maximum total number of jobs to accept; runners with a job are always covered.
	Announce int32
	// Create is the maximum number of runners to create now.
	Create int32
	// Reason in one sentence without a full stop.
	Reason string
}

// Plan contains the actions and their reasons.
type Plan struct {
	// Desired number of runners.
	Desired int32
	// Supply is the current number of usable runners.
	Supply int32
	// Create is the number of runners to create.
	Create int32
	// Drain lists the runners to remove, in order.
	Drain []string
	// Announce is the maximum total number of jobs that GitHub may assign to the pool.
	Announce int32
	// Waiting is the number of jobs that wait because no more are accepted. Full is true if max is the only reason for
	// that.
	Waiting int32
	Full    bool
	// Reason for Desired in one sentence.
	Reason string
	// LookAgain is the time until the next runner leaves its protection window; 0 for none.
	LookAgain time.Duration
}

// Decide returns the plan for a pool.
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

// saturate sets Waiting and Full: how many jobs wait because the pool accepts no more, and whether max is the reason.
// bounded is true if the plan's reason already names max. A full pool stays full between the end of a job and the start
// of the next.
func (in Input) saturate(p Plan, bounded bool) Plan {
	known := max(0, in.Demand.Jobs-max(in.Jobs, p.Announce)) // jobs that only other sources report
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

// Desired returns the desired number of runners and the reason. Until the demand is known, it is the current number.
func Desired(in Input) (int32, string) {
	w := wishOf(in)
	return w.runners, w.reason
}

// wish is a number of runners, with the reason. bounded is true if the reason names max.
type wish struct {
	runners int32
	reason  string
	bounded bool
}

func wishOf(in Input) wish {
	switch {
	case !in.Demand.Known:
		return wish{countRunners(in.Runners).supply, "no count of jobs: Corral neither starts nor deletes runners", false}
	case in.Pace == nil || in.Suspended:
		return unpaced(in)
	case in.Pace.Desired > in.most():
		return wish{in.most(), fmt.Sprintf("%s, bounded by max %d", in.Pace.Reason, in.Limits.Max), true}
	}
	return wish{in.Pace.Desired, in.Pace.Reason, false}
}

// counts holds numbers of runners, by how they can be used.
type counts struct {
	live    int32    // pending, idle or busy, also while the runner is being removed
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
			// Failed and finished runners are not counted.
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

// most returns the maximum number of runners: accepted jobs are served even above max, unless JobsWait.
func (in Input) most() int32 {
	if in.JobsWait {
		return in.Limits.Max
	}
	return max(in.Limits.Max, in.Jobs)
}

// unpaced returns the number of runners before Pace is applied.
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

// announce returns the capacity to announce. Runners with a job are always covered. A suspended or held pool announces
// 0, so that no finished job is replaced by a new one.
func announce(in Input, c counts) int32 {
	if in.Suspended || in.Held {
		return 0
	}
	return max(c.busy, in.Limits.Max)
}

// extra returns the number of runners to have above the desired number.
func (in Input) extra() int64 { return int64(max(0, min(in.Extra, in.Surge))) }

func creations(in Input, c counts, desired int32) int32 {
	missing := int64(desired) + in.extra() - int64(c.supply)
	room := int64(in.most()) + int64(max(0, in.Surge)) - int64(c.live)
	return int32(min(max(0, min(missing, room)), math.MaxInt32))
}

// drains returns surplus runners without a job that are past their protection. Idle runners are removed only if the
// remaining running ones cover the desired number; starting runners do not count for that. Settling runners are not
// surplus: they have ended, and may have a job that GitHub still counts.
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

// ripen returns the runners past their protection window, and the time until the next one leaves it.
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

// pick returns the names of the first n runners to remove. At most idle of them are idle runners. Starting runners come
// before idle ones, outdated ones before others, then the longest in their state, then by name.
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

// place returns a lower number for runners that are removed first: starting runners and, among equals, outdated ones.
func place(r Runner) (place int) {
	if r.State != v1alpha1.RunnerPending {
		place += 2
	}
	if !r.Outdated {
		place++
	}
	return place
}
