// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package poolstatus turns observations of runners into states and counts. It is
// pure.
package poolstatus

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Settle is how long a runner that exited without an error still counts as supply while GitHub has not reported that its
// job completed. The message arrives within about a second of the end. After this time, Corral considers it lost.
const Settle = 15 * time.Second

// JobLost is how long at most a runner that died during a job still counts as supply, because GitHub still counts the job.
// GitHub fails the job after about 9.5 minutes without contact. GitHub never gives that job to another runner, so the pool
// creates none for it.
const JobLost = 15 * time.Minute

// Observation holds the known facts about one runner, from its Runner object, its Pod and
// the messages of its scale set.
type Observation struct {
	// CreatedAt and PodCreatedAt are the creation times of the Runner and its pod, and ScheduledAt is the time when the pod
	// was assigned to a node. PodCreatedAt and ScheduledAt are zero before that.
	CreatedAt, PodCreatedAt, ScheduledAt time.Time
	HasPod                               bool
	// StartedAt and EndedAt are the times when the runner's container started and ended; zero before that.
	StartedAt, EndedAt time.Time
	// Noticed is when Corral first observed the end. If it is later than EndedAt, the time Settle counts from Noticed, because
	// messages that GitHub sent while no controller was listening arrive only now. Zero to count from EndedAt.
	Noticed time.Time
	// EndedClean is true if the container exited with code 0, which proves nothing about the job.
	EndedClean bool
	// Exit describes how the pod or its container ended. It is nil if neither has ended, and after an exit with code 0 for
	// which no other actor is responsible.
	Exit *v1alpha1.RunnerExit
	// EndReason describes how the container or its pod ended, or why it does not start.
	EndReason string
	// Cause classifies EndReason; "" if nothing is wrong.
	Cause v1alpha1.RunnerCause
	// Expires is the time after which the runner's registration, or the token with which it registers itself, may be invalid.
	Expires time.Time
	// StuckSince is when the cache's claim began to prevent the scheduling of the pod; zero if it does not.
	StuckSince time.Time
	// Terminating is true while the Runner is being removed. Deregistered is true once GitHub has
	// removed its registration, so that it cannot get a job.
	Terminating, Deregistered bool
	// Removed is true if another actor deletes the pod, for example because of a drain or a lost node.
	Removed bool
	// Job is the current or last job of the runner. For a persistent runner, it is only the current job.
	Job *v1alpha1.JobReference
	// Deadline is how long the runner may take to start, from the creation of its pod, or of the Runner while there is no pod.
	Deadline time.Duration
	Stay
}

// Stay holds observations that exist only for a persistent runner.
type Stay struct {
	// IdleSince is the time when the runner's last job ended; zero if it had none.
	IdleSince time.Time
	// Restarting is when the container ended that the kubelet will restart; zero while the container runs.
	Restarting time.Time
}

// Assessment is a runner's state with its reason, the time when it began, and the time at which it changes without an
// event.
type Assessment struct {
	State  v1alpha1.RunnerState
	Reason string
	Since  time.Time
	// Settling is true if the runner has ended (Finished or Failed), but still counts as supply, because GitHub still counts
	// its job.
	Settling bool
	// Until is the time when the state changes if nothing else happens; zero for never.
	Until time.Time
	// Cause is the reason why a Pending runner does not start, or why a Failed runner failed.
	Cause v1alpha1.RunnerCause
	// Blocked is true if a Pending runner cannot have a pod yet, because the namespace's quota or the pool's cache has no room. It has no
	// startup deadline, because another runner would wait as well.
	Blocked bool
}

// StuckDeadline is the startup deadline of a runner whose start fails for a cause that waiting does not fix: an image that
// cannot be pulled, a missing ConfigMap, or a pod that the API server refuses. The kubelet or Corral retries each of these
// several times before the deadline.
const StuckDeadline = time.Minute

// ClaimDeadline is how long a cache's claim may prevent the scheduling of a pod. Then Corral replaces the runner, and the
// new runner uses another claim.
const ClaimDeadline = 30 * time.Second

// OutlivesJob returns the reason for a runner whose job has ended with a result ("" if unknown) and whose container may still run.
func OutlivesJob(result string) string {
	job := "its job is over"
	if result != "" {
		job = "job " + result
	}
	return job + "; its container is not known to have ended"
}

// Assess returns the state of a runner at a time.
func Assess(o Observation, now time.Time) Assessment {
	switch {
	case o.Job != nil && o.Job.CompletedAt != nil:
		return Assessment{State: v1alpha1.RunnerFinished, Since: o.Job.CompletedAt.Time, Reason: "job " + cmp.Or(o.Job.Result, "completed")}
	case !o.EndedAt.IsZero():
		return ended(o, now)
	case o.Job != nil && o.Terminating && o.Deregistered:
		// GitHub would not have deleted the registration of a runner with a job.
		return Assessment{State: v1alpha1.RunnerFinished, Since: o.StartedAt, Reason: OutlivesJob("")}
	case !o.Restarting.IsZero() && !o.Removed:
		return restarting(o, now)
	case o.Job != nil:
		since := cmp.Or(o.Job.StartedAt, &metav1.Time{Time: o.StartedAt}).Time
		return Assessment{State: v1alpha1.RunnerBusy, Since: since, Reason: "running a job"}
	case o.Removed:
		return removed(o, now)
	case !o.StartedAt.IsZero():
		return Assessment{State: v1alpha1.RunnerIdle, Since: latest(o.StartedAt, o.IdleSince), Reason: "waiting for a job"}
	}
	return starting(o, now)
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

// removed assesses a runner whose pod another actor deletes.
func removed(o Observation, now time.Time) Assessment {
	reason := "its pod is being removed"
	if o.EndReason != "" && o.EndReason != ReasonDeleted {
		reason += ": " + o.EndReason
	}
	return Assessment{State: v1alpha1.RunnerFailed, Since: now, Reason: reason, Cause: cmp.Or(o.Cause, v1alpha1.CauseRemoved)}
}

const (
	// jobWillFail is appended to the reason of a runner that ended with a job.
	jobWillFail = ", with a job: GitHub will fail it"
	// mayHaveWorked is appended to the reason of a runner that ended and may have had a job.
	mayHaveWorked = ", waiting for the job's completion"
	// unasked is appended to the reason of a runner that ended while GitHub is unavailable, so that it is unknown whether the
	// runner had a job.
	unasked = "; it is unknown whether it had a job, because GitHub is unavailable"
)

// withoutNews returns a reason without the suffix that Assess or Unasked appended.
func withoutNews(reason string) string {
	return strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(reason, jobWillFail), mayHaveWorked), unasked)
}

// Unasked returns the state of a runner that ended without an error, until GitHub reports whether it had a job.
func Unasked(o Observation) Assessment {
	return Assessment{State: v1alpha1.RunnerFinished, Since: o.EndedAt, Reason: endedBy(o, "ended") + unasked, Cause: o.Cause}
}

// ended assesses a runner whose container ended before the completion of its job was observed.
func ended(o Observation, now time.Time) Assessment {
	settled, lost := latest(o.EndedAt, o.Noticed).Add(Settle), o.EndedAt.Add(JobLost)
	byItself := o.EndedClean && o.Exit == nil // GitHub reports the completion of its job, if it had one
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

// endedBy returns the reason why a container that exited with code 0 was stopped; byItself if nothing stopped it.
func endedBy(o Observation, byItself string) string {
	if o.Cause == "" && o.Exit == nil {
		return byItself
	}
	return o.EndReason
}

// crash returns the cause of a runner that failed. It returns none if the runner had a job, which may have caused the
// failure, or if Corral was removing the runner.
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

// isBlocked reports whether the runner cannot have a pod yet because the namespace's quota or the pool's cache has no room.
func (o Observation) isBlocked() bool {
	return !o.HasPod && (o.Cause == v1alpha1.CauseQuota || o.Cause == v1alpha1.CauseCache)
}

// due returns the deadline for the start of a runner, and how long it may take until then.
func (o Observation) due() (due time.Time, within time.Duration) {
	from := latest(o.CreatedAt, o.PodCreatedAt)
	within = o.Deadline
	// StuckDeadline counts from the time when the pod was assigned to a node, so that the kubelet can try several times.
	if o.Cause.Permanent() {
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
