// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package demand combines the sources of a pool's demand into a number of jobs, a number of idle runners and a proposed
// total, each with its reason. It is pure: it takes readings and returns values.
//
//	jobs   = the maximum over the sources that count jobs, and at least the number of busy runners
//	total  = the maximum of the proposed totals; it raises the desired number
//	idle   = the sum of the boosts; it is added to the pool's own idle runners
//
// While a source has no signal, its last numbers still count. Until every source has had a signal, the controller
// removes no runners.
package demand

import (
	"fmt"
	"math"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/wording"
)

// MostJobs is the upper limit of every number in a signal: the largest max that a pool may declare. Larger numbers are
// reduced to it, so that a faulty source cannot request more.
const MostJobs = 100_000

// maxReason is the maximum length of a reason in status, in bytes.
const maxReason = 256

// Signal is the reading of one source. A number that the source does not provide is nil.
type Signal struct {
	// Name of the source: scaleSet, webhook, or the name of a metric or boost.
	Name string
	// Jobs is the number of waiting or running jobs, Total the proposed number of runners, and Idle the number of idle
	// runners to add; each is 0 or more.
	Jobs, Total, Idle *int32
	// Reason is one sentence without a full stop.
	Reason string
	// Stale is true while the source has no signal, or only an incomplete one. The numbers are then its last numbers,
	// or the incomplete ones. Combine uses the numbers in the pool's status instead where they are larger.
	Stale bool
	// At is the time of the signal; zero if there never was one.
	At time.Time
}

// Reading contains the signals from one reader: a scale set's session, the job tracker for GitHub's events, or the
// poller for metrics.
type Reading struct {
	// Known is false until the reader has read all of the pool's sources that it is responsible for at least once.
	Known bool
	// Signals are in the order of the pool's spec.
	Signals []Signal
	// Actual counts the existing runners for a pool in mode Observe, whatever created them; nil if unknown.
	Actual *Actual
}

// Actual is the number of a pool's runners on GitHub, and how many of them have a job.
type Actual struct{ Runners, Busy int32 }

// Input is the input of Combine.
type Input struct {
	// Readings come from all readers of the pool's sources. If there are none, the pool has no sources: its demand is
	// known, and only its busy runners count.
	Readings []Reading
	// Before is the demand in the pool's status: the sources' last numbers.
	Before []v1alpha1.DemandStatus
	// Busy is the number of runners with a job. It is the lower limit of Demand.Jobs.
	Busy int32
}

// Demand is the combined demand of all sources.
type Demand struct {
	// Known is false if there is no signal, neither now nor in the status. The numbers are then meaningless.
	Known bool
	// Keep is true while a reader has not read all of its sources, or a source without a signal has no last numbers
	// either. The controller may then create runners, but not remove any.
	Keep bool
	// Jobs is the number of waiting or running jobs, 0 to MostJobs.
	Jobs int32
	// Reason for Jobs in one sentence without a full stop; empty if no source counts jobs.
	Reason string
	// Total is the proposed number of runners, 0 to MostJobs; 0 if there is no proposal.
	Total int32
	// TotalReason is the reason for Total.
	TotalReason string
	// Idle is the number of idle runners to add, 0 to MostJobs.
	Idle int32
	// IdleReason is the reason for Idle.
	IdleReason string
	// Stale is true while a source has no signal, or only an incomplete one.
	Stale bool
	// Statuses of the sources, for the pool's status.
	Statuses []v1alpha1.DemandStatus
}

// Combine combines the readings of all sources.
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

// add adds the signal of one source. It raises the numbers of a stale signal to the source's last numbers, where those
// are larger.
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

// remember adds the last numbers of sources that have no signal yet. order is the demand in the pool's status, and left
// holds the entries of it whose sources sent no signal.
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

// larger returns the larger of two numbers, where nil means none.
func larger(a, b *int32) *int32 {
	if a == nil || (b != nil && *b > *a) {
		return b
	}
	return a
}

// bounded returns a copy of a number, limited to the range 0 to MostJobs.
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

// atMost returns n as a number of jobs, and whether it was cut to MostJobs.
func atMost(n float64) (int32, bool) {
	if n > MostJobs {
		return MostJobs, true
	}
	return int32(math.Max(0, n)), false
}
