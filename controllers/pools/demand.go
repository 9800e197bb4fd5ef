// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/demand"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/scaling"
	"github.com/corral-dev/corral/internal/schedule"
)

// Reader returns the last readings of a pool's demand sources.
type Reader interface {
	Reading(pool types.NamespacedName) demand.Reading
}

// JobTracker tracks the jobs that GitHub's events report.
type JobTracker interface {
	// AtMax sets whether the pool can start no more runners, so that its jobs may have to wait. While this is true, waiting
	// jobs do not expire.
	AtMax(pool types.NamespacedName, atMax bool)
	// Retain drops the jobs of runners that are gone, according to keep.
	Retain(pool types.NamespacedName, keep func(runner string) bool)
}

// poolDemand is the demand of a pool from all its sources.
type poolDemand struct {
	demand.Demand
	// accepted counts the jobs that GitHub assigned to the pool, and offered the jobs for the pool that it has not assigned.
	accepted, offered int32
	// actual is the number of runners that GitHub has for a pool that only observes, and how many of them have a job; nil if
	// unknown.
	actual *demand.Actual
}

// hasDemand reports whether a pool has demand sources other than its scale set.
func hasDemand(pool *v1alpha1.RunnerPool) bool {
	d := pool.Spec.Demand
	return pool.Spec.IsREST() || pool.Spec.Observes() || d.Webhook != nil || len(d.Boosts)+len(d.Metrics) > 0
}

// readDemand combines the demand sources. If the scale set is the only source, its count is used unchanged.
func (r *Reconciler) readDemand(o observation) poolDemand {
	busy := o.counts.Busy
	if o.denied != nil { // without a session, only the jobs of busy runners are known
		return poolDemand{accepted: busy, Demand: demand.Demand{Known: true, Jobs: busy}}
	}
	isKnown := o.github.Known && o.github.State != scaleset.OwnedElsewhere
	jobs := int32(o.github.Assigned) + o.elsewhere() //nolint:gosec // GitHub's counts fit
	var offered int32
	if isKnown {
		offered = int32(o.github.Statistics.AvailableJobs) //nolint:gosec // GitHub's counts fit
	}
	if !hasDemand(o.pool) {
		return poolDemand{accepted: jobs, offered: offered, Demand: demand.Demand{Known: isKnown, Jobs: jobs}}
	}
	in := demand.Input{Before: o.pool.Status.Demand, Busy: busy}
	if !o.pool.Spec.IsREST() && !o.pool.Spec.Observes() {
		set := demand.Reading{Known: isKnown}
		if isKnown {
			set.Signals = []demand.Signal{{Name: v1alpha1.DemandScaleSet, Jobs: &jobs, Reason: "assigned by GitHub", At: o.github.Counted}}
		}
		in.Readings = append(in.Readings, set)
	}
	d := poolDemand{accepted: jobs, offered: offered}
	for _, source := range r.Demand {
		reading := source.Reading(o.key())
		in.Readings = append(in.Readings, reading)
		if reading.Actual != nil {
			d.actual = reading.Actual
		}
	}
	d.Demand = demand.Combine(in)
	return d
}

// currentScale has the numbers that the pool declares now, from its schedules, warm capacity and triggered boosts.
type currentScale struct {
	v1alpha1.Scale
	// idleReason explains why idle differs from the declared number; empty if it does not.
	idleReason string
	// schedule is the new value of status.schedule; nil for a pool without schedules, or whose schedules were never all valid.
	schedule *v1alpha1.ScheduleStatus
	// problems lists invalid fields. Corral uses the other fields.
	problems []string
	// planned is what the schedules declare.
	planned plannedScale
	// lastJob is when the pool last had a job.
	lastJob time.Time
	// next is the delay after which the numbers may change; 0 for never.
	next time.Duration
}

// scaleNow returns the numbers that the pool declares now.
func scaleNow(o observation) currentScale {
	c := scheduled(o.pool, o.memory.planned, o.now)
	var unread []string
	for _, problem := range demand.Check(&o.pool.Spec) {
		unread = append(unread, problem.Error())
	}
	c.problems = append(unread, c.problems...)
	c.lastJob = o.memory.lastJob
	if o.demand.Jobs > 0 || o.counts.Busy > 0 || c.lastJob.IsZero() {
		c.lastJob = o.now
	}
	warm := demand.Warm(o.pool.Spec.Scale, demand.Activity{
		Idle: c.Idle, Jobs: o.demand.Jobs, Busy: o.counts.Busy, LastJob: c.lastJob, Now: o.now,
	})
	c.Idle = min(warm.Idle+o.demand.Idle, c.Max)
	c.idleReason = join(warm.Reason, o.demand.IdleReason)
	c.next = soonest(c.next, warm.Next)
	return c
}

// plannedScale is what a pool's schedules declare until their next change. Corral remembers it, because a schedule can have
// so many windows without a gap that finding the next change takes a tenth of a second.
type plannedScale struct {
	uid         types.UID // of the pool
	generation  int64
	from, until time.Time
	schedule.Now
}

// maxPlanned is how long an answer is remembered if no schedule starts or ends.
const maxPlanned = time.Hour

// holds reports whether the remembered answer is valid for a pool at a time.
func (p *plannedScale) holds(pool *v1alpha1.RunnerPool, now time.Time) bool {
	return p.uid == pool.UID && p.generation == pool.Generation && !now.Before(p.from) && now.Before(p.until)
}

// scheduled returns the numbers that spec.scale and the schedules declare now. If a schedule is invalid, the last valid
// numbers stay in force; without any, Corral uses the valid schedules.
func scheduled(pool *v1alpha1.RunnerPool, planned plannedScale, now time.Time) currentScale {
	last := pool.Status.Schedule
	c := currentScale{Scale: pool.Spec.Scale.Numbers()}
	if len(pool.Spec.Scale.Schedules) == 0 {
		return c
	}
	plan, problems := schedule.Compile(pool.Spec.Scale.Schedules)
	for _, p := range problems {
		c.problems = append(c.problems, p.String())
	}
	if len(problems) > 0 && last != nil {
		c.Scale, c.schedule = last.Numbers(), last
		return c
	}
	if !planned.holds(pool, now) {
		planned = plannedScale{uid: pool.UID, generation: pool.Generation, from: now, Now: plan.At(now, pool.Spec.Scale), until: now.Add(maxPlanned)}
		if !planned.Next.IsZero() && planned.Next.Before(planned.until) {
			planned.until = planned.Next
		}
	}
	c.planned = planned
	at := planned.Now
	c.Scale = at.Scale
	if !at.Next.IsZero() {
		c.next = max(time.Millisecond, at.Next.Sub(now))
	}
	if len(problems) == 0 { // otherwise the next pass would take these numbers for the last valid ones and keep them
		c.schedule = scheduleStatus(at)
	}
	return c
}

// scheduleStatus returns status.schedule for what valid schedules declare.
func scheduleStatus(at schedule.Now) *v1alpha1.ScheduleStatus {
	s := v1alpha1.ScheduleStatusOf(at.Scale)
	s.Active = at.Active
	if !at.Next.IsZero() {
		s.Next = &metav1.Time{Time: at.Next}
	}
	return s
}

// invalid returns a Stall for a pool with invalid fields; nil if it has none.
func (c currentScale) invalid() error {
	if len(c.problems) == 0 {
		return nil
	}
	return kube.Stall(catalog.SpecProblems.With(strings.Join(c.problems, "\n")))
}

// pace limits how fast the desired number changes, according to the pool's behavior. It returns the number to use instead
// of the wanted one (nil if the wanted one is allowed), the state for the next pass, and the delay after which another
// change is allowed.
func pace(o observation, in scaling.Input) (*scaling.Pace, pacing, time.Duration) {
	b, p := o.pool.Spec.Scale.Behavior, o.memory.pacing
	if b == nil || !in.Demand.Known || in.Suspended || in.Held {
		p.isOn = false
		return nil, p, 0
	}
	if last := o.pool.Status.Decision; !p.isOn {
		p.history, p.isOn = demand.Rebuilt(last, o.now), true
		if last != nil {
			p.desired = last.Desired
		}
	}
	wanted, reason := scaling.Desired(in)
	p.history = p.history.Clone()
	step := p.history.Behave(b, demand.Bounds{Min: in.Limits.Min, Max: max(in.Limits.Max, in.Jobs)}, p.desired, wanted, o.now)
	p.desired = step.Number
	if step.Number == wanted {
		return nil, p, step.Next
	}
	return &scaling.Pace{Desired: step.Number, Reason: fmt.Sprintf("%s; %s", reason, step.Reason)}, p, step.Next
}

// isFull reports whether jobs may have to wait because the pool cannot start more runners: it is at its max, held back or
// suspended. A pool that only observes has no runners of its own.
func isFull(o observation, d decision) bool {
	if d.limits == nil || d.plan.Desired >= d.limits.GetMax() {
		return true
	}
	return !o.pool.Spec.Observes() && (o.pool.Spec.Stops() || o.denied != nil || d.plan.Supply < d.plan.Desired)
}

// compare returns how many runners a pool that only observes would have, compared with how many there are.
func compare(desired int32, actual *demand.Actual) *v1alpha1.Observation {
	o := &v1alpha1.Observation{Desired: desired, Difference: "the number of running runners is not known yet"}
	if actual != nil {
		o.Actual, o.Busy = &actual.Runners, &actual.Busy
		o.Difference = difference(desired, actual.Runners)
	}
	return o
}

func difference(desired, actual int32) string {
	switch {
	case desired > actual:
		return fmt.Sprintf("it would have %d runners, %d more than there are", desired, desired-actual)
	case desired < actual:
		return fmt.Sprintf("it would have %d runners, %d fewer than there are", desired, actual-desired)
	}
	return fmt.Sprintf("it would have as many runners as there are: %d", desired)
}

func join(reasons ...string) string {
	return strings.Join(slices.DeleteFunc(reasons, func(r string) bool { return r == "" }), "; ")
}
