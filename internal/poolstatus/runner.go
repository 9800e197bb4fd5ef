// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package poolstatus turns observations of runners into states and counts. It is
// pure.
package poolstatus

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Settle is how long a runner that ended without an error keeps its place while
// GitHub has not yet said that its job completed. Messages come within a second
// or so of the end; past this bound the message is taken as lost.
const Settle = 15 * time.Second

// JobLost bounds how long GitHub may count the job of a runner that died with it: it
// fails the job after some 9.5 minutes without a word from the runner. No other runner
// gets that job, so none is made for it.
const JobLost = 15 * time.Minute

// Observation is what is known of one runner: from its Runner object, its Pod and
// the messages of its scale set.
type Observation struct {
	// CreatedAt and PodCreatedAt are when the Runner and its pod were created, and ScheduledAt when the pod got its node. The latter two are
	// zero while there is no pod or no node.
	CreatedAt, PodCreatedAt, ScheduledAt time.Time
	HasPod                               bool
	// StartedAt and EndedAt are when the runner's container started and ended; zero if not yet.
	StartedAt, EndedAt time.Time
	// Noticed is when the end was first seen: what GitHub had to say before that, while
	// nobody listened, comes after it. Zero if that doesn't matter.
	Noticed time.Time
	// EndedClean is true when the container ended with exit code 0, which says nothing about the job.
	EndedClean bool
	// Exit is how the container ended, unless with exit code 0; nil if it didn't.
	Exit *v1alpha1.RunnerExit
	// EndReason says how the container or its pod ended, or why it does not start.
	EndReason string
	// Cause is the name of that; "" when nothing is amiss.
	Cause v1alpha1.RunnerCause
	// Expires is when the runner's registration, or the token by which it registers itself, may no longer be valid.
	Expires time.Time
	// StuckSince is since when the claim of the cache keeps the pod from a node; zero if it doesn't.
	StuckSince time.Time
	// Terminating is true while the Runner is being ended; Deregistered when GitHub has
	// forgotten it, so that it can't get a job any more.
	Terminating, Deregistered bool
	// Removed is true when somebody else deletes the pod: a drain, or a node that is gone.
	Removed bool
	// Job is the runner's job if it has or had one; a persistent one's, while it has it.
	Job *v1alpha1.JobReference
	// Deadline is how long the runner may take to start, from the creation of its pod, or from its own while it has none.
	Deadline time.Duration
	Stay
}

// Stay is what is observed of a persistent runner alone.
type Stay struct {
	// IdleSince is when its last job ended; zero if it had none.
	IdleSince time.Time
	// Restarting is when its container ended that is to run again; zero while it runs.
	Restarting time.Time
}

// Assessment is a runner's state, what led to it, since when it holds, and when
// time alone will change it.
type Assessment struct {
	State  v1alpha1.RunnerState
	Reason string
	Since  time.Time
	// Settling is true of an ended runner, Finished or Failed, whose job GitHub still counts.
	Settling bool
	// Until is when the verdict changes if nothing else happens; zero for never.
	Until time.Time
	// Cause that keeps a Pending runner from starting, or that a Failed one failed of.
	Cause v1alpha1.RunnerCause
	// Blocked is true of a Pending runner that cannot have a pod yet, because the namespace's quota or the pool's cache has no room. It has no
	// startup deadline: another runner would wait as well.
	Blocked bool
}

// StuckDeadline is how long after a runner's creation a cause that waiting won't mend
// may keep it from starting: an image that can't be pulled, a ConfigMap that isn't
// there, a pod that the API server refuses. All are tried several times in that time.
const StuckDeadline = time.Minute

// ClaimDeadline is how long the claim of a cache may keep a pod from a node: another runner takes another claim.
const ClaimDeadline = 30 * time.Second

// OutlivesJob says of a runner whose job ended with a result, "" if that isn't known, that its container may run.
func OutlivesJob(result string) string {
	job := "its job is over"
	if result != "" {
		job = "job " + result
	}
	return job + "; its container is not known to have ended"
}

// Assess says which state a runner is in at a time.
func Assess(o Observation, now time.Time) Assessment {
	switch {
	case o.Job != nil && o.Job.CompletedAt != nil:
		return Assessment{State: v1alpha1.RunnerFinished, Since: o.Job.CompletedAt.Time, Reason: "job " + cmp.Or(o.Job.Result, "completed")}
	case !o.EndedAt.IsZero():
		return ended(o, now)
	case o.Job != nil && o.Terminating && o.Deregistered:
		// GitHub would not have let go of a runner with a job.
		return Assessment{State: v1alpha1.RunnerFinished, Since: o.StartedAt, Reason: OutlivesJob("")}
	case !o.Restarting.IsZero() && !o.Removed:
		return restarting(o, now)
	case o.Job != nil:
		since := o.StartedAt
		if o.Job.StartedAt != nil {
			since = o.Job.StartedAt.Time
		}
		return Assessment{State: v1alpha1.RunnerBusy, Since: since, Reason: "running a job"}
	case o.Removed:
		return removed(o, now)
	case !o.StartedAt.IsZero():
		return Assessment{State: v1alpha1.RunnerIdle, Since: latest(o.StartedAt, o.IdleSince), Reason: "waiting for a job"}
	}
	return starting(o, now)
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// removed judges a runner whose pod someone else deletes.
func removed(o Observation, now time.Time) Assessment {
	reason := "its pod is being removed"
	if o.EndReason != "" && o.EndReason != ReasonDeleted {
		reason += ": " + o.EndReason
	}
	return Assessment{State: v1alpha1.RunnerFailed, Since: now, Reason: reason, Cause: cmp.Or(o.Cause, v1alpha1.CauseRemoved)}
}

const (
	// jobWillFail is added to how a runner with a job ended.
	jobWillFail = ", with a job: GitHub will fail it"
	// mayHaveWorked is added to how a runner ended that may have had a job.
	mayHaveWorked = ", waiting for the job's completion"
	// unasked is added to how a runner ended while GitHub cannot be asked whether it had a job.
	unasked = "; whether it had a job isn't known, as GitHub can't be asked"
)

// withoutNews returns a reason without what Assess added to it.
func withoutNews(reason string) string {
	return strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(reason, jobWillFail), mayHaveWorked), unasked)
}

// Unasked is the state of a runner that ended without an error, until GitHub says whether it had a job.
func Unasked(o Observation) Assessment {
	return Assessment{State: v1alpha1.RunnerFinished, Since: o.EndedAt, Reason: endedBy(o, "ended") + unasked, Cause: o.Cause}
}

// ended judges a runner whose container ended before its job's completion was seen.
func ended(o Observation, now time.Time) Assessment {
	settled, lost := o.EndedAt.Add(Settle), o.EndedAt.Add(JobLost)
	if again := o.Noticed.Add(Settle); again.After(settled) {
		settled = again
	}
	byItself := o.EndedClean && o.Exit == nil // which GitHub reports, if it had a job
	switch {
	case o.EndedClean && now.Before(settled):
		return Assessment{State: v1alpha1.RunnerFinished, Since: o.EndedAt, Settling: true, Until: settled, Reason: endedBy(o, "ended") + mayHaveWorked, Cause: o.Cause}
	case !byItself && o.Job != nil && now.Before(lost):
		return Assessment{State: v1alpha1.RunnerFailed, Since: o.EndedAt, Settling: true, Until: lost, Reason: cmp.Or(o.EndReason, "the container ended with an error") + jobWillFail}
	case !o.EndedClean:
		return Assessment{State: v1alpha1.RunnerFailed, Since: o.EndedAt, Reason: cmp.Or(o.EndReason, "the container ended with an error"), Cause: crash(o)}
	case o.Job == nil:
		return Assessment{State: v1alpha1.RunnerFailed, Since: o.EndedAt, Reason: endedBy(o, "ended without a job"), Cause: crash(o)}
	}
	return Assessment{State: v1alpha1.RunnerFinished, Since: o.EndedAt, Reason: "ended; the job's completion was not seen"}
}

// endedBy returns what ended a container that then exited with code 0; byItself if nothing did.
func endedBy(o Observation, byItself string) string {
	if o.Cause == "" && o.Exit == nil {
		return byItself
	}
	return o.EndReason
}

// crash names why a container ended too early. With a job it's the job's matter.
func crash(o Observation) v1alpha1.RunnerCause {
	if o.Job != nil || o.Terminating {
		return ""
	}
	return cmp.Or(o.Cause, v1alpha1.CauseCrash)
}

func starting(o Observation, now time.Time) Assessment {
	if o.isBlocked() && now.Before(o.Expires) {
		return Assessment{State: v1alpha1.RunnerPending, Since: o.CreatedAt, Until: o.Expires, Reason: o.EndReason, Cause: o.Cause, Blocked: true}
	}
	due, within := o.due()
	if now.Before(due) {
		return Assessment{State: v1alpha1.RunnerPending, Since: o.CreatedAt, Until: due, Reason: cmp.Or(o.EndReason, "starting"), Cause: o.Cause}
	}
	return Assessment{
		State: v1alpha1.RunnerFailed, Since: due, Cause: cmp.Or(o.Cause, v1alpha1.CauseSlow),
		Reason: fmt.Sprintf("not running within %s: %s", within, cmp.Or(o.EndReason, "no container status")),
	}
}

// isBlocked reports whether the runner cannot have a pod yet because there is no room for it.
func (o Observation) isBlocked() bool {
	return !o.HasPod && (o.Cause == v1alpha1.CauseQuota || o.Cause == v1alpha1.CauseCache)
}

// due returns when a runner that does not start is given up, and the time that it then had.
func (o Observation) due() (due time.Time, within time.Duration) {
	from := latest(o.CreatedAt, o.PodCreatedAt)
	within = o.Deadline
	if o.Cause.Permanent() { // a node's first attempt is none of several
		within = min(within, latest(from, o.ScheduledAt).Sub(from)+StuckDeadline)
	}
	if !o.Expires.IsZero() {
		within = min(within, o.Expires.Sub(from))
	}
	if !o.StuckSince.IsZero() {
		within = min(within, o.StuckSince.Add(ClaimDeadline).Sub(from))
	}
	within = max(0, within)
	return from.Add(within), within
}
