// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package scaling decides how many runners a pool should have, which to end and
// how much work to accept. It is pure: numbers in, numbers and their reason out.
//
//	desired  = max(jobs, min(max, max(min, jobs+idle)))   accepted jobs are served even above max, unless it is hard
//	supply   = usable runners: starting, idle, busy, and ended ones GitHub still counts
//	create   = desired − supply, within max(max, jobs) + surge
//	drain    = surplus runners without a job that are past their protection window
//	announce = max(runners with a job, max): a total, never derived from desired;
//	           less while something holds the pool back: its health, or a quota
package scaling

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Protection is how long a runner without a job is kept after its creation, or
// after it became idle, before it may be ended as surplus: a job may be on its way.
const Protection = 30 * time.Second

// Limits bound the number of runners: 0 ≤ Min ≤ Max, 0 ≤ Idle ≤ Max.
type Limits struct {
	Min, Max, Idle int32
	// Hard has jobs wait that were accepted before Max fell; otherwise they are served.
	Hard bool
}

// Runner is what a decision needs to know of one runner.
type Runner struct {
	Name  string
	State v1alpha1.RunnerState
	// Settling is true of a runner that ended while GitHub's count of jobs still
	// includes its job: it fills its place until the count is corrected.
	Settling bool
	// Outdated is true of a runner made from an older template.
	Outdated bool
	// Deleting is true of a runner that is being ended already.
	Deleting bool
	// Since is when the runner came into its state.
	Since time.Time
}

// Input is the state a decision is taken on.
type Input struct {
	Limits Limits
	// Suspended takes in no new work.
	Suspended bool
	// Jobs assigned to the pool and not finished.
	Jobs int32
	// JobsKnown is false until GitHub was heard once: then nothing is grown or ended.
	JobsKnown bool
	Runners   []Runner
	// Holds keep the plan below what the limits allow, for reasons of health or quota.
	Holds []Hold
	Now   time.Time
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
	// Reason for Desired in one sentence.
	Reason string
	// LookAgain is the time after which a runner leaves its protection window; 0 for none.
	LookAgain time.Duration
}

// Decide computes the plan for a pool.
func Decide(in Input) Plan {
	c := take(in.Runners)
	if !in.JobsKnown {
		return Plan{
			Desired: c.supply(), Supply: c.supply(), Announce: announce(in, c),
			Reason: "waiting for the first word from GitHub: nothing is started or ended",
		}
	}
	desired, reason := desire(in)
	p := Plan{Desired: desired, Supply: c.supply(), Announce: announce(in, c), Reason: reason}
	p.Create = creations(in, c, desired)
	for _, h := range in.Holds {
		p.Announce = max(min(p.Announce, h.Announce), min(p.Announce, c.busy))
		p.Create = min(p.Create, h.Create)
		p.Reason += "; " + h.Reason
	}
	p.Drain, p.LookAgain = drains(in, c, desired)
	return p
}

// census sorts runners by what they are good for.
type census struct {
	live    int32    // has or will have a pod that can work or is just ending
	busy    int32    // with a job
	running int32    // idle or busy, of the current template, or busy of an older one
	current int32    // usable, of the current template, or busy, or settling
	free    []Runner // current, without a job
	stale   []Runner // outdated, without a job
}

// supply counts usable runners of any template.
func (c census) supply() int32 { return c.current + int32(len(c.stale)) }

func take(runners []Runner) census {
	var c census
	for _, r := range runners {
		switch {
		case r.Settling:
			c.current++
			c.running++
		case r.State == v1alpha1.RunnerBusy:
			c.live++
			c.busy++
			c.current++
			c.running++
		case r.State != v1alpha1.RunnerPending && r.State != v1alpha1.RunnerIdle:
			// Failed or finished: counts for nothing.
		case r.Deleting:
			c.live++ // its pod still takes room
		case r.Outdated:
			c.live++
			c.stale = append(c.stale, r)
		default:
			c.live++
			c.current++
			c.free = append(c.free, r)
			if r.State == v1alpha1.RunnerIdle {
				c.running++
			}
		}
	}
	return c
}

// desire computes how many runners there should be and says what decided it.
func desire(in Input) (int32, string) {
	l := in.Limits
	if in.Suspended {
		return in.Jobs, fmt.Sprintf("suspended: serving %s", jobs(in.Jobs))
	}
	wanted := in.Jobs + l.Idle
	reason := jobs(in.Jobs)
	if l.Idle > 0 {
		reason = fmt.Sprintf("%s + %d idle", reason, l.Idle)
	}
	if wanted < l.Min {
		wanted = l.Min
		reason = fmt.Sprintf("%s, raised to min %d", reason, l.Min)
	}
	if wanted > l.Max {
		wanted = l.Max
		reason = fmt.Sprintf("%s, bounded by max %d", reason, l.Max)
	}
	if in.Jobs > wanted && l.Hard {
		return wanted, fmt.Sprintf("%s; %s accepted before wait, by policy", reason, jobs(in.Jobs-wanted))
	}
	if in.Jobs > wanted {
		return in.Jobs, fmt.Sprintf("%s accepted before max fell to %d are served", jobs(in.Jobs), l.Max)
	}
	return wanted, reason
}

func jobs(n int32) string {
	if n == 1 {
		return "1 job"
	}
	return fmt.Sprintf("%d jobs", n)
}

// announce computes the capacity to announce. Runners with a job are always
// covered; suspension announces nothing at all, so that no finished job is
// replaced by a new one.
func announce(in Input, c census) int32 {
	if in.Suspended {
		return 0
	}
	return max(c.busy, in.Limits.Max)
}

// surge is how many runners beyond the bound may exist while outdated ones are
// replaced: a quarter of the desired number, at least one (a Deployment's default).
func surge(c census, desired int32) int32 {
	if len(c.stale) == 0 {
		return 0
	}
	return max(1, (desired+3)/4)
}

func creations(in Input, c census, desired int32) int32 {
	missing := desired - c.current
	bound := max(in.Limits.Max, in.Jobs)
	if in.Limits.Hard {
		bound = in.Limits.Max
	}
	ceiling := int64(bound) + int64(surge(c, desired))
	room := ceiling - int64(c.live)
	return int32(max(0, min(int64(missing), room)))
}

// drains picks runners without a job to end: outdated ones as soon as running
// runners cover the desired number without them, then surplus ones.
func drains(in Input, c census, desired int32) ([]string, time.Duration) {
	keep := max(0, desired-c.running)
	names := pick(c.stale, int32(len(c.stale))-keep)
	surplus := c.current - desired
	if surplus <= 0 {
		return names, 0
	}
	ripe, next := ripen(c.free, in.Now)
	names = append(names, pick(ripe, surplus)...)
	if int32(len(ripe)) >= surplus {
		next = 0
	}
	return names, next
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

// pick names the first n runners: those still starting before idle ones, the
// longest in their state first, then by name.
func pick(runners []Runner, n int32) []string {
	if n <= 0 {
		return nil
	}
	sorted := slices.Clone(runners)
	slices.SortFunc(sorted, func(a, b Runner) int {
		if a.State != b.State {
			if a.State == v1alpha1.RunnerPending {
				return -1
			}
			return 1
		}
		if d := a.Since.Compare(b.Since); d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	})
	names := make([]string, 0, n)
	for _, r := range sorted[:min(int(n), len(sorted))] {
		names = append(names, r.Name)
	}
	return names
}
