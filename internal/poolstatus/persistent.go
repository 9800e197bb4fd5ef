// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package poolstatus

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// RegistrationLife is how long a registration may wait until its runner starts, counted from the creation of the Runner.
// GitHub removes the registration of a runner that does not connect for a day.
const RegistrationLife = 12 * time.Hour

// TokenLife is how long after the creation of its Runner a persistent runner may register. The registration token is valid
// for an hour, and Corral requests it after it has created the Runner.
const TokenLife = 50 * time.Minute

// LastJob returns the last known job of a persistent runner, from its status and the mark on its pod, which may be nil.
func LastJob(r *v1alpha1.Runner, pod *corev1.Pod) *v1alpha1.JobReference {
	return Later(r.Status.Job, JobOf(cmp.Or(pod, &corev1.Pod{})))
}

// Later returns the later of two jobs of one runner. If both are records of the same job, it returns the more complete one.
// Either may be nil.
func Later(a, b *v1alpha1.JobReference) *v1alpha1.JobReference {
	switch {
	case a == nil:
		return b
	case b == nil, a.ID == b.ID && (a.IsOver() || !b.IsOver()):
		return a
	case a.ID == b.ID, predates(a, b):
		return b
	}
	return a
}

// predates reports whether job a began before job b. If both began in the same second, the job with the smaller numeric ID
// counts as the earlier one.
func predates(a, b *v1alpha1.JobReference) bool {
	if d := began(a).Compare(began(b)); d != 0 {
		return d < 0
	}
	first, err1 := strconv.ParseInt(a.ID, 10, 64)
	second, err2 := strconv.ParseInt(b.ID, 10, 64)
	return err1 == nil && err2 == nil && first < second
}

// began returns the time when a job began, or its end if the start is unknown.
func began(j *v1alpha1.JobReference) time.Time {
	return cmp.Or(j.StartedAt, j.CompletedAt, &metav1.Time{}).Truncate(time.Second)
}

// Follow applies an event about a job to a persistent runner's last known job, which may be nil. update is the job as the
// event describes it. Follow returns the new last job, and how many more jobs have ended. Events may arrive twice and in
// any order; Follow ignores events about jobs before the last one. A runner has one job at a time, so the start of another
// job shows that the previous one has ended. A job whose ID is unknown has the ID v1alpha1.UnknownJob.
func Follow(known, update *v1alpha1.JobReference) (last *v1alpha1.JobReference, over int32) {
	switch unnamed := known != nil && known.ID == v1alpha1.UnknownJob; {
	case known == nil:
		return update, countOver(update)
	case update.ID == v1alpha1.UnknownJob:
		return followUnnamed(known, update)
	case known.ID == update.ID, unnamed && isSame(known, update):
		merged := *update
		merged.StartedAt, merged.CompletedAt = cmp.Or(known.StartedAt, update.StartedAt), cmp.Or(known.CompletedAt, update.CompletedAt)
		merged.Result = cmp.Or(known.Result, update.Result)
		return &merged, countOver(update) * (1 - countOver(known))
	case predates(update, known):
		return known, 0
	}
	return update, 1 - countOver(known) + countOver(update)
}

// followUnnamed is Follow for an update from GitHub's list of runners, which shows only whether the runner has a job. A
// list from before the job began, or from the same second, does not prove that the job is over.
func followUnnamed(known, update *v1alpha1.JobReference) (last *v1alpha1.JobReference, over int32) {
	switch {
	case update.IsOver() && !known.IsOver() && update.CompletedAt.Before(&metav1.Time{Time: began(known).Add(time.Second)}):
		return known, 0
	case update.IsOver() && !known.IsOver():
		merged := *known
		merged.CompletedAt = update.CompletedAt
		return &merged, 1
	case !update.IsOver() && known.IsOver() && began(update).After(known.CompletedAt.Time):
		return update, 0
	}
	return known, 0
}

// isSame reports whether an event with a job ID is about the known job, whose ID is unknown. An event is about another job
// if that job ended before the known job was observed, or began after the observed end of the known job.
func isSame(unnamed, update *v1alpha1.JobReference) bool {
	if unnamed.IsOver() {
		return !began(update).After(unnamed.CompletedAt.Time)
	}
	return !update.IsOver() || !update.CompletedAt.Time.Before(began(unnamed))
}

// countOver returns 1 for a job that has ended, and otherwise 0.
func countOver(j *v1alpha1.JobReference) int32 {
	return map[bool]int32{true: 1}[j.IsOver()]
}

// observeAgain records the end of a persistent runner's container, which the kubelet restarts, as an interruption. Only the
// end of the pod, or a version that GitHub refuses, ends the runner.
func observeAgain(o *Observation, pod *corev1.Pod, s corev1.ContainerStatus) {
	end := s.State.Terminated
	if end == nil && s.State.Running == nil {
		end = s.LastTerminationState.Terminated
	}
	if end == nil {
		return
	}
	observeContainer(o, corev1.ContainerState{Terminated: end})
	if e := endOfRunner(pod, end); e.Cause.IsExternal() {
		o.Cause = e.Cause
	}
	if o.Cause != v1alpha1.CauseOutdated {
		o.Restarting, o.EndedAt, o.EndedClean = o.EndedAt, time.Time{}, false
	}
}

// restarting assesses a persistent runner whose container ended and will restart. A runner with a job stays busy. A runner
// whose container does not run again within StuckDeadline has ended.
func restarting(o Observation, now time.Time) Assessment {
	due := o.Restarting.Add(StuckDeadline)
	switch {
	case !now.Before(due):
		o.EndedAt = o.Restarting
		o.EndReason = "it exits repeatedly: " + o.EndReason
		return ended(o, now)
	case o.Job != nil:
		return Assessment{State: v1alpha1.RunnerBusy, Since: began(o.Job), Until: due, Reason: "restarting with a job: " + o.EndReason}
	}
	return Assessment{State: v1alpha1.RunnerPending, Since: o.Restarting, Until: due, Reason: "restarting: " + o.EndReason, Cause: o.Cause}
}

// Retires returns why a persistent runner must be replaced as soon as it has no job; "" if it need not be replaced yet.
// next is then the time until it reaches its maximum age; 0 if it has none.
func Retires(r *v1alpha1.Runner, done int32, spec *v1alpha1.PersistentSpec, now time.Time) (why string, next time.Duration) {
	if spec == nil || !r.Persists() {
		return "", 0
	}
	if most := spec.MaxJobs; most != nil && done >= *most {
		return fmt.Sprintf("it has done %d jobs (spec.persistent.maxJobs: %d)", done, *most), 0
	}
	if spec.MaxAge == nil {
		return "", 0
	}
	left := r.CreationTimestamp.Add(spec.MaxAge.Duration).Sub(now)
	if left > 0 {
		return "", left
	}
	return fmt.Sprintf("it is older than %s (spec.persistent.maxAge)", spec.MaxAge.Duration), 0
}
