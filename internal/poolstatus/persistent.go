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

// RegistrationLife is how long a registration may wait for its runner: GitHub forgets those of runners that do not connect for a day.
const RegistrationLife = 12 * time.Hour

// TokenLife is how long after its creation a persistent runner may register: its token is good for an hour, and older than itself it isn't.
const TokenLife = 50 * time.Minute

// LastJob is the last job that a persistent runner is known to have had, by its status and the mark on its pod, which may be nil.
func LastJob(r *v1alpha1.Runner, pod *corev1.Pod) *v1alpha1.JobReference {
	if pod == nil {
		return r.Status.Job
	}
	return Later(r.Status.Job, JobOf(pod))
}

// Later is the later of two jobs of one runner, or what is known more of one. Either may be nil.
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

// predates reports whether a job began before another. Of two in the same second it's that with the smaller number.
func predates(a, b *v1alpha1.JobReference) bool {
	if d := began(a).Compare(began(b)); d != 0 {
		return d < 0
	}
	first, err1 := strconv.ParseInt(a.ID, 10, 64)
	second, err2 := strconv.ParseInt(b.ID, 10, 64)
	return err1 == nil && err2 == nil && first < second
}

// began is when a job began, or ended if that is all that is known.
func began(j *v1alpha1.JobReference) time.Time {
	if at := cmp.Or(j.StartedAt, j.CompletedAt); at != nil {
		return at.Truncate(time.Second)
	}
	return time.Time{}
}

// Follow adds news of a job to what is known of a persistent runner's last one, nil for none: said is the job as it began, or as it
// ended. It returns the last job by then, and how many more are over. News come twice and in any order; of a job before the last they are
// none. A runner has one job at a time, so another that begins tells that the one before is over. A job that nobody named has the id
// v1alpha1.UnknownJob.
func Follow(known, said *v1alpha1.JobReference) (last *v1alpha1.JobReference, over int32) {
	switch unnamed := known != nil && known.ID == v1alpha1.UnknownJob; {
	case known == nil:
		return said, countOver(said)
	case said.ID == v1alpha1.UnknownJob:
		return followUnnamed(known, said)
	case known.ID == said.ID, unnamed && isSame(known, said):
		merged := *said
		merged.StartedAt, merged.CompletedAt = cmp.Or(known.StartedAt, said.StartedAt), cmp.Or(known.CompletedAt, said.CompletedAt)
		merged.Result = cmp.Or(known.Result, said.Result)
		return &merged, countOver(said) * (1 - countOver(known))
	case predates(said, known):
		return known, 0
	}
	return said, 1 - countOver(known) + countOver(said)
}

// followUnnamed is Follow of what a list of runners tells: that it has a job, or none. A list of before the job, or of the second in which it
// began, tells nothing of it.
func followUnnamed(known, said *v1alpha1.JobReference) (last *v1alpha1.JobReference, over int32) {
	switch {
	case said.IsOver() && !known.IsOver() && said.CompletedAt.Before(&metav1.Time{Time: began(known).Add(time.Second)}):
		return known, 0
	case said.IsOver() && !known.IsOver():
		merged := *known
		merged.CompletedAt = said.CompletedAt
		return &merged, 1
	case !said.IsOver() && known.IsOver() && began(said).After(known.CompletedAt.Time):
		return said, 0
	}
	return known, 0
}

// isSame reports whether news with a name are of the job that nobody named: one that ended before that was seen is another, and so is one that
// begins after its end was.
func isSame(unnamed, said *v1alpha1.JobReference) bool {
	if unnamed.IsOver() {
		return !began(said).After(unnamed.CompletedAt.Time)
	}
	return !said.IsOver() || !said.CompletedAt.Time.Before(began(unnamed))
}

// countOver is 1 for a job that is over.
func countOver(j *v1alpha1.JobReference) int32 {
	if j.IsOver() {
		return 1
	}
	return 0
}

// observeAgain takes the end of a container that runs again for an interruption: only its pod's end, and a version that GitHub refuses, are the runner's.
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

// restarting judges a persistent runner whose container ended and is to run again. In a job it is busy until GitHub says how that ended.
func restarting(o Observation, now time.Time) Assessment {
	due := o.Restarting.Add(StuckDeadline)
	switch {
	case !now.Before(due):
		o.EndedAt = o.Restarting
		o.EndReason = "it ends again and again: " + o.EndReason
		return ended(o, now)
	case o.Job != nil:
		return Assessment{State: v1alpha1.RunnerBusy, Since: began(o.Job), Until: due, Reason: "restarting with a job: " + o.EndReason}
	}
	return Assessment{State: v1alpha1.RunnerPending, Since: o.Restarting, Until: due, Reason: "restarting: " + o.EndReason, Cause: o.Cause}
}

// Retires says why a persistent runner is to be replaced once it has no job, "" if it isn't, and after which time it will be.
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
