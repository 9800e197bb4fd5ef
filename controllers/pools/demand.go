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
	"github.com/corral-dev/corral/internal/demand"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/scaling"
	"github.com/corral-dev/corral/internal/schedule"
)

// Reader reads what sources of demand last said of a pool.
type Reader interface {
	Reading(pool types.NamespacedName) demand.Reading
}

// Desk keeps account of the jobs that GitHub's events tell of.
type Desk interface {
	// AtMax says whether jobs may wait for want of runners: they don't expire meanwhile.
	AtMax(pool types.NamespacedName, atMax bool)
	// Retain lets go of jobs on runners that are gone.
	Retain(pool types.NamespacedName, keep func(runner string) bool)
}

// gauge finds out how many jobs there are, and which numbers hold now: those of the schedules, with warm
// capacity and what slack triggers add.
func (x *run) gauge() {
	x.check()
	x.demand = x.sum()
	s := &x.pool.Status
	s.Jobs, s.Demand = x.demand.Jobs, nil
	if x.hasDemand() {
		s.Demand = x.demand.Statuses
	}
	x.scheduled()
	if s.Jobs > 0 || s.Runners.Busy > 0 || x.recall.lastJob.IsZero() {
		x.recall.lastJob = x.Now()
	}
	warm := demand.Warm(x.pool.Spec.Scale, demand.Activity{
		Idle: x.scale.Idle, Jobs: s.Jobs, Busy: s.Runners.Busy, LastJob: x.recall.lastJob, Now: x.Now(),
	})
	x.lookAgain(warm.Next)
	x.scale.Idle = min(warm.Idle+x.demand.Idle, x.scale.Max)
	x.idleWhy = join(warm.Reason, x.demand.IdleReason)
}

// hasDemand says whether anything but a scale set tells of jobs.
func (x *run) hasDemand() bool {
	d := x.pool.Spec.Demand
	return x.isREST() || x.observes() || d.Webhook != nil || len(d.Slack)+len(d.Metrics) > 0
}

// observes says whether the pool acts on nothing.
func (x *run) observes() bool { return x.pool.Spec.GetMode() == v1alpha1.Observe }

// sum adds up what tells of jobs. Where it is the scale set alone, its count holds as it is.
func (x *run) sum() demand.Demand {
	if x.denied != nil { // there is no session, so the jobs that are left are those that run
		x.accepted = x.pool.Status.Runners.Busy
		return demand.Demand{Known: true, Jobs: x.accepted}
	}
	known := x.words.Known && x.words.State != scaleset.OwnedElsewhere
	jobs := int32(x.words.Assigned) //nolint:gosec // GitHub's counts fit
	x.accepted = jobs
	if !x.hasDemand() {
		return demand.Demand{Known: known, Jobs: jobs}
	}
	in := demand.Input{Before: x.pool.Status.Demand, Busy: x.pool.Status.Runners.Busy}
	if !x.isREST() && !x.observes() {
		set := demand.Reading{Known: known}
		if known {
			set.Signals = []demand.Signal{{Name: v1alpha1.DemandScaleSet, Jobs: &jobs, Reason: "assigned by GitHub", At: x.words.Counted}}
		}
		in.Readings = append(in.Readings, set)
	}
	for _, r := range x.Demand {
		reading := r.Reading(x.key)
		in.Readings = append(in.Readings, reading)
		if reading.Actual != nil {
			x.actual = reading.Actual
		}
	}
	return demand.Combine(in)
}

// scheduled finds the numbers that the pool declares now. While a schedule can't be read, those that held last go on to.
func (x *run) scheduled() {
	declared, last := x.pool.Spec.Scale, x.pool.Status.Schedule
	x.scale = policy.Scale{Min: declared.GetMin(), Max: declared.GetMax(), Idle: declared.GetIdle()}
	x.pool.Status.Schedule = nil
	if len(x.pool.Spec.Scale.Schedules) == 0 {
		return
	}
	plan, problems := schedule.Compile(x.pool.Spec.Scale.Schedules)
	for _, p := range problems {
		x.misread(p.String())
	}
	if len(problems) > 0 && last != nil {
		x.scale = policy.Scale{Min: last.Min, Max: last.Max, Idle: last.Idle}
		x.pool.Status.Schedule = last
		return
	}
	now := plan.At(x.Now(), declared)
	x.scale = policy.Scale{Min: now.Min, Max: now.Max, Idle: now.Idle}
	x.pool.Status.Schedule = &v1alpha1.ScheduleStatus{Active: now.Active, Min: now.Min, Max: now.Max, Idle: now.Idle}
	if !now.Next.IsZero() {
		x.pool.Status.Schedule.Next = &metav1.Time{Time: now.Next}
		x.lookAgain(max(time.Millisecond, now.Next.Sub(x.Now())))
	}
}

// misread notes a field that means nothing. The others hold.
func (x *run) misread(what string) { x.unread = append(x.unread, what) }

// check notes what of the demand, the behavior and warm capacity means nothing.
func (x *run) check() {
	for _, problem := range demand.Check(&x.pool.Spec) {
		x.misread(problem.Error())
	}
}

// misunderstood is the outcome of a pool that has such fields.
func (x *run) misunderstood() error {
	if len(x.unread) == 0 {
		return nil
	}
	return kube.Stall(v1alpha1.InvalidSpecReason, "%s", strings.Join(x.unread, "\n"))
}

// pace lets the desired number change no faster than the pool's behavior allows.
func (x *run) pace(in *scaling.Input) {
	b := x.pool.Spec.Scale.Behavior
	if b == nil || !in.JobsKnown || in.Suspended {
		x.recall.isPaced = false
		return
	}
	if last := x.pool.Status.Decision; !x.recall.isPaced {
		x.recall.paced, x.recall.isPaced = demand.Rebuilt(last, x.Now()), true
		if last != nil {
			x.recall.desired = last.Desired
		}
	}
	wanted := scaling.Decide(*in)
	step := x.recall.paced.Behave(b, demand.Bounds{Min: in.Limits.Min, Max: max(in.Limits.Max, in.Jobs)}, x.recall.desired, wanted.Desired, x.Now())
	x.recall.desired = step.Number
	x.lookAgain(step.Next)
	if step.Number != wanted.Desired {
		in.Pace = &scaling.Pace{Desired: step.Number, Reason: fmt.Sprintf("%s; %s", wanted.Reason, step.Reason)}
	}
}

// isFull says whether a job that waits may wait for want of a runner: at its max, held back or suspended, a pool
// can't take more. For one that only observes, others have runners.
func (x *run) isFull() bool {
	if x.limits == nil || x.plan.Desired >= x.limits.Max {
		return true
	}
	return !x.observes() && (x.pool.Spec.Suspend || x.denied != nil || x.plan.Supply < x.plan.Desired)
}

// compare tells what a pool that only observes would do, beside what runs.
func (x *run) compare() {
	x.pool.Status.Observed = nil
	if !x.observes() {
		return
	}
	o := &v1alpha1.ObservedStatus{Desired: x.plan.Desired, Difference: "what runs isn't known yet"}
	if x.actual != nil {
		o.Actual, o.Busy = &x.actual.Runners, &x.actual.Busy
		o.Difference = difference(x.plan.Desired, x.actual.Runners)
	}
	x.pool.Status.Observed = o
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
