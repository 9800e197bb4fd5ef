// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package poolstatus turns observations of runners into states and counts. It is
// pure.
package poolstatus

import (
	"fmt"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Settle is how long a runner that ended without an error keeps its place while
// GitHub has not yet said that its job completed. Messages come within a second
// or so of the end; past this bound the message is taken as lost.
const Settle = 15 * time.Second

// Observation is what is known of one runner: from its Runner object, its Pod and
// the messages of its scale set.
type Observation struct {
	CreatedAt time.Time
	// StartedAt and EndedAt are when the runner's container started and ended; zero if not yet.
	StartedAt, EndedAt time.Time
	// EndedClean is true when the container ended with exit code 0, which says nothing about the job.
	EndedClean bool
	// EndReason says how the container or its pod ended, or why it does not start.
	EndReason string
	// Removed is true when somebody else deletes the pod: a drain, or a node that is gone.
	Removed bool
	// Job is the runner's job if it has or had one.
	Job *v1alpha1.JobReference
	// Deadline is how long the runner may take from creation to start.
	Deadline time.Duration
}

// Verdict is a runner's state, what led to it, since when it holds, and when
// time alone will change it.
type Verdict struct {
	State  v1alpha1.RunnerState
	Reason string
	Since  time.Time
	// Settling is true of an ended runner whose job GitHub still counts.
	Settling bool
	// Until is when the verdict changes if nothing else happens; zero for never.
	Until time.Time
}

// Judge says which state a runner is in at a time.
func Judge(o Observation, now time.Time) Verdict {
	switch {
	case o.Job != nil && o.Job.CompletedAt != nil:
		return Verdict{State: v1alpha1.RunnerFinished, Since: o.Job.CompletedAt.Time, Reason: "job " + word(o.Job.Result, "completed")}
	case !o.EndedAt.IsZero():
		return ended(o, now)
	case o.Job != nil:
		since := o.StartedAt
		if o.Job.StartedAt != nil {
			since = o.Job.StartedAt.Time
		}
		return Verdict{State: v1alpha1.RunnerBusy, Since: since, Reason: "running a job"}
	case o.Removed:
		return Verdict{State: v1alpha1.RunnerFailed, Since: now, Reason: "its pod is being removed"}
	case !o.StartedAt.IsZero():
		return Verdict{State: v1alpha1.RunnerIdle, Since: o.StartedAt, Reason: "waiting for a job"}
	}
	return starting(o, now)
}

// ended judges a runner whose container ended before its job's completion was seen.
func ended(o Observation, now time.Time) Verdict {
	settled := o.EndedAt.Add(Settle)
	switch {
	case !o.EndedClean:
		return Verdict{State: v1alpha1.RunnerFailed, Since: o.EndedAt, Reason: word(o.EndReason, "the container ended with an error")}
	case now.Before(settled):
		return Verdict{State: v1alpha1.RunnerFinished, Since: o.EndedAt, Settling: true, Until: settled, Reason: "ended, waiting for the job's completion"}
	case o.Job == nil:
		return Verdict{State: v1alpha1.RunnerFailed, Since: o.EndedAt, Reason: "ended without a job"}
	}
	return Verdict{State: v1alpha1.RunnerFinished, Since: o.EndedAt, Reason: "ended; the job's completion was not seen"}
}

func starting(o Observation, now time.Time) Verdict {
	due := o.CreatedAt.Add(o.Deadline)
	if now.Before(due) {
		return Verdict{State: v1alpha1.RunnerPending, Since: o.CreatedAt, Until: due, Reason: word(o.EndReason, "starting")}
	}
	return Verdict{
		State: v1alpha1.RunnerFailed, Since: due,
		Reason: fmt.Sprintf("not running %s after its creation: %s", o.Deadline, word(o.EndReason, "no container status")),
	}
}

func word(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}
