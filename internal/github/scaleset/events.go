// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"time"

	official "github.com/actions/scaleset"

	"github.com/corral-dev/corral/internal/github"
)

// EventType is what happened to a job.
type EventType string

// Types of job events.
const (
	// JobAssigned is true when the job counts among the scale set's assigned jobs.
	JobAssigned EventType = "JobAssigned"
	// JobStarted is true when a runner has taken the job: the only word on which runner has which job.
	JobStarted EventType = "JobStarted"
	// JobCompleted is true when the job ended; without a runner if it never ran.
	JobCompleted EventType = "JobCompleted"
)

// JobEvent is one event of a message. It may come more than once, and late.
type JobEvent struct {
	Type EventType
	// JobID identifies the job: a GUID on github.com.
	JobID string
	// Repository is OWNER/NAME.
	Repository string `most:"140"`
	// Workflow is the workflow's ref: OWNER/NAME/.github/workflows/FILE@REF.
	Workflow string `cut:"1024"`
	// Name of the job as shown.
	Name string `cut:"1024"`
	// RunID is the workflow run.
	RunID int64
	// RunnerID and RunnerName say who has the job; 0 and "" when nobody.
	RunnerID   int64
	RunnerName string
	// Result of a completed job: succeeded, failed, canceled or another word of GitHub's.
	Result string
	// QueuedAt is when the job was queued, AssignedAt when it was assigned to the scale set, StartedAt when a runner got it; each is
	// zero when GitHub didn't say.
	QueuedAt, AssignedAt, StartedAt time.Time
	// At is when it happened; when the message came, if GitHub didn't say.
	At time.Time
}

// eventsOf returns the events of a message that was received at a time. ours converts times by GitHub's clock.
func eventsOf(m *official.RunnerScaleSetMessage, received time.Time, ours func(time.Time) time.Time) []JobEvent {
	events := make([]JobEvent, 0, len(m.JobAssignedMessages)+len(m.JobStartedMessages)+len(m.JobCompletedMessages))
	for _, job := range m.JobAssignedMessages {
		events = append(events, eventOf(JobAssigned, job.JobMessageBase, ours(job.ScaleSetAssignTime), received))
	}
	for _, job := range m.JobStartedMessages {
		event := eventOf(JobStarted, job.JobMessageBase, ours(job.RunnerAssignTime), received)
		event.RunnerID, event.RunnerName = int64(job.RunnerID), job.RunnerName
		events = append(events, event)
	}
	for _, job := range m.JobCompletedMessages {
		event := eventOf(JobCompleted, job.JobMessageBase, ours(job.FinishTime), received)
		event.RunnerID, event.RunnerName, event.Result = int64(job.RunnerID), job.RunnerName, job.Result
		events = append(events, event)
	}
	for i := range events {
		e := &events[i]
		e.QueuedAt, e.AssignedAt, e.StartedAt = ours(e.QueuedAt), ours(e.AssignedAt), ours(e.StartedAt)
	}
	return events
}

func eventOf(kind EventType, job official.JobMessageBase, at, received time.Time) JobEvent {
	if at.IsZero() {
		at = received
	}
	return JobEvent{
		Type: kind, JobID: job.JobID, Repository: repository(job.OwnerName, job.RepositoryName), Workflow: job.JobWorkflowRef,
		Name: job.JobDisplayName, RunID: job.WorkflowRunID, At: at,
		QueuedAt: job.QueueTime, AssignedAt: job.ScaleSetAssignTime, StartedAt: job.RunnerAssignTime,
	}
}

func repository(owner, name string) string {
	if owner == "" {
		return name
	}
	return owner + "/" + name
}

// durable returns the events that must not be lost: who has which job, and how it ended.
func durable(events []JobEvent) []JobEvent {
	var kept []JobEvent
	for _, event := range events {
		if event.Type == JobStarted || event.Type == JobCompleted {
			kept = append(kept, event)
		}
	}
	return kept
}

// size returns about how many bytes the event takes.
func (e JobEvent) size() int64 {
	size, _ := github.Fit(&e) // it fits
	return int64(size)
}

// IsAbout says whether the event is about the runner with a registration's id: names come
// again, ids don't. An id that isn't known, 0, is no objection.
func (e JobEvent) IsAbout(runnerID int64) bool {
	return e.RunnerID == 0 || runnerID == 0 || e.RunnerID == runnerID
}
