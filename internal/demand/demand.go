// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package demand adds up what the sources of a pool's demand say: how many jobs there are, how many idle runners and how many in
// total are asked for, and why. It is pure: readings come in, numbers and their reasons go out.
//
//	jobs   = the largest of the sources that count jobs, and no fewer than the runners with a job
//	total  = the largest of the proposals for a total; it raises the desired number
//	idle   = what boosts add up to; it is added to the pool's own idle runners
//
// The last number of a source without a signal goes on to count. A source that never gave a signal keeps what runs.
package demand

import (
	"fmt"
	"math"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/wording"
)

// MostJobs is the largest number that a signal may tell of: as many as the largest max that a pool may declare. A source that lies
// can ask for no more.
const MostJobs = 100_000

// maxReason bounds a reason in status, in bytes.
const maxReason = 256

// Signal is what a source says. A nil number is one that it doesn't give.
type Signal struct {
	// Name of the source: scaleSet, webhook, or the name of a metric or boost.
	Name string
	// Jobs waiting or running that it counts, Total of runners that it proposes, and Idle runners that it adds; each 0 or more.
	Jobs, Total, Idle *int32
	// Reason in one sentence without a full stop.
	Reason string
	// Stale is true while the source gives no signal, or can't see all. The numbers are then those that it said last, or what it sees;
	// those in the pool's status count if they are larger.
	Stale bool
	// At is when it said so; zero if it never did.
	At time.Time
}

// Reading is what one reader of sources has: a scale set's session, the account of jobs for GitHub's events, the poller for metrics.
type Reading struct {
	// Known is false until the reader can speak of all of the pool's sources that are its own.
	Known bool
	// Signals in the order of the pool's spec.
	Signals []Signal
	// Actual is what runs for a pool with the mode Observe, whoever made it; nil if that isn't known.
	Actual *Actual
}

// Actual are the runners that GitHub has for a pool, and those of them with a job.
type Actual struct{ Runners, Busy int32 }

// Input is what the demand is made of.
type Input struct {
	// Readings of all the readers that the pool has sources of. Without any, there is no demand and nothing to wait for.
	Readings []Reading
	// Before is the demand in the pool's status: what sources said last.
	Before []v1alpha1.DemandStatus
	// Busy is how many runners have a job: jobs are no fewer.
	Busy int32
}

// Demand is what all sources together say.
type Demand struct {
	// Known is false without any signal, now or in the status: then the numbers mean nothing.
	Known bool
	// Keep is true while a source gave no signal yet, nor one in the status: runners may be made, and none may be ended.
	Keep bool
	// Jobs waiting or running, 0 to MostJobs.
	Jobs int32
	// Reason for Jobs in one sentence without a full stop; empty without a source that counts jobs.
	Reason string
	// Total of runners that is proposed, 0 to MostJobs; 0 without a proposal.
	Total int32
	// TotalReason says why.
	TotalReason string
	// Idle runners to add, 0 to MostJobs.
	Idle int32
	// IdleReason says why.
	IdleReason string
	// Stale is true while a source gives no signal.
	Stale bool
	// Statuses of the sources, for the pool's status.
	Statuses []v1alpha1.DemandStatus
}

// Combine adds up what the sources say.
func Combine(in Input) Demand {
	d := Demand{Known: len(in.Readings) == 0, Jobs: min(max(0, in.Busy), MostJobs)}
	if d.Jobs > 0 {
		d.Reason = wording.Count(d.Jobs, "busy runner")
	}
	before := make(map[string]v1alpha1.DemandStatus, len(in.Before))
	for _, s := range in.Before {
		before[s.Name] = s
	}
	waiting := false
	for _, r := range in.Readings {
		d.Known = d.Known || r.Known
		waiting = waiting || !r.Known
		for _, s := range r.Signals {
			d.add(s, before)
			delete(before, s.Name)
		}
	}
	if waiting {
		d.remember(in.Before, before)
	}
	d.Keep = d.Keep || waiting
	return d
}

// add takes a signal in. One that is held says no less than it said last.
func (d *Demand) add(s Signal, before map[string]v1alpha1.DemandStatus) {
	if s.Stale {
		last := before[s.Name]
		s.Jobs, s.Total, s.Idle = larger(s.Jobs, last.Jobs), larger(s.Total, last.Total), larger(s.Idle, last.Idle)
		d.Keep = d.Keep || s.isEmpty()
	}
	d.Stale = d.Stale || s.Stale
	s.Jobs, s.Total, s.Idle = bounded(s.Jobs), bounded(s.Total), bounded(s.Idle)
	s.Reason = wording.Truncate(s.Reason, maxReason)
	why := fmt.Sprintf("%s: %s", s.Name, s.Reason)
	if s.Jobs != nil && (*s.Jobs > d.Jobs || d.Reason == "") {
		d.Jobs, d.Reason = *s.Jobs, why
	}
	if s.Total != nil && (*s.Total > d.Total || d.TotalReason == "") {
		d.Total, d.TotalReason = *s.Total, why
	}
	if s.Idle != nil && *s.Idle > 0 {
		d.Idle = min(d.Idle+*s.Idle, MostJobs)
		d.IdleReason = joined(d.IdleReason, why)
	}
	d.Statuses = append(d.Statuses, v1alpha1.DemandStatus{
		Name: s.Name, Jobs: s.Jobs, Total: s.Total, Idle: s.Idle, Reason: s.Reason, Stale: s.Stale,
	})
}

// remember adds the numbers in the status of sources that gave no signal yet, in the order of the status.
func (d *Demand) remember(order []v1alpha1.DemandStatus, left map[string]v1alpha1.DemandStatus) {
	for _, s := range order {
		if _, ok := left[s.Name]; !ok {
			continue
		}
		d.Known = true
		d.add(Signal{Name: s.Name, Jobs: s.Jobs, Total: s.Total, Idle: s.Idle, Reason: s.Reason, Stale: true}, left)
	}
}

func (s Signal) isEmpty() bool { return s.Jobs == nil && s.Total == nil && s.Idle == nil }

// larger is the larger of two numbers, nil being none.
func larger(a, b *int32) *int32 {
	if a == nil || (b != nil && *b > *a) {
		return b
	}
	return a
}

// bounded copies a number, within 0 and MostJobs.
func bounded(n *int32) *int32 {
	if n == nil {
		return nil
	}
	return new(min(max(0, *n), MostJobs))
}

func joined(a, b string) string {
	if a == "" {
		return b
	}
	if len(a)+len(b) > maxReason {
		return a
	}
	return a + "; " + b
}

// atMost is n as a number of jobs, and whether that is more than is taken in.
func atMost(n float64) (int32, bool) {
	if n > MostJobs {
		return MostJobs, true
	}
	return int32(math.Max(0, n)), false
}
