// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"time"

	official "github.com/actions/scaleset"

	"github.com/corral-dev/corral/internal/github"
)

// EventType is the type of a job event.
type EventType string

// Types of job events.
const (
	// JobAssigned means that the job now counts towards the scale set's assigned jobs.
	JobAssigned EventType = "JobAssigned"
	// JobStarted means that a runner has taken the job. It is the only event that connects a runner with a job.
	JobStarted EventType = "JobStarted"
	// JobCompleted means that the job has ended. The event has no runner if the job never ran.
	JobCompleted EventType = "JobCompleted"
)

// JobEvent is one event of a message. It may arrive late, and more than once.
type JobEvent struct {
	Type EventType
	// JobID identifies the job: a GUID on github.com.
	JobID string
	// Repository is OWNER/NAME.
	Repository string `most:"140"`
	// Workflow is the workflow's ref: OWNER/NAME/.github/workflows/FILE@REF.
	Workflow string `cut:"1024"`
	// Name is the job's display name.
	Name string `cut:"1024"`
	// RunID is the id of the workflow run.
	RunID int64
	// RunnerID and RunnerName identify the runner that has the job; 0 and "" for none.
	RunnerID   int64
	RunnerName string
	// Result is the result of a completed job: succeeded, failed, canceled or another of GitHub's values.
	Result string
	// QueuedAt, AssignedAt and StartedAt are the times when the job was queued, when it was assigned to the scale set,
	// and when a runner took it. Each is zero if GitHub did not send it.
	QueuedAt, AssignedAt, StartedAt time.Time
	// At is the time of the event, or the arrival of the message if GitHub did not send a time.
	At time.Time
}

// eventsOf returns the events of a message that arrived at the given time. toLocal converts times of GitHub's clock.
func eventsOf(m *official.RunnerScaleSetMessage, received time.Time, toLocal func(time.Time) time.Time) []JobEvent {
	events := make([]JobEvent, 0, len(m.JobAssignedMessages)+len(m.JobStartedMessages)+len(m.JobCompletedMessages))
	for _, job := range m.JobAssignedMessages {
		events = append(events, eventOf(JobAssigned, job.JobMessageBase, toLocal(job.ScaleSetAssignTime), received))
	}
	for _, job := range m.JobStartedMessages {
		event := eventOf(JobStarted, job.JobMessageBase, toLocal(job.RunnerAssignTime), received)
		event.RunnerID, event.RunnerName = int64(job.RunnerID), job.RunnerName
		events = append(events, event)
	}
	for _, job := range m.JobCompletedMessages {
		event := eventOf(JobCompleted, job.JobMessageBase, toLocal(job.FinishTime), received)
		event.RunnerID, event.RunnerName, event.Result = int64(job.RunnerID), job.RunnerName, job.Result
		events = append(events, event)
	}
	for i := range events {
		e := &events[i]
		e.QueuedAt, e.AssignedAt, e.StartedAt = toLocal(e.QueuedAt), toLocal(e.AssignedAt), toLocal(e.StartedAt)
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

// durable returns the events that must not be lost: which runner has which job, and how the job ended.
func durable(events []JobEvent) []JobEvent {
	var kept []JobEvent
	for _, event := range events {
		if event.Type == JobStarted || event.Type == JobCompleted {
			kept = append(kept, event)
		}
	}
	return kept
}

// size returns the approximate size of the event in bytes.
func (e JobEvent) size() int64 {
	size, _ := github.Fit(&e) // the error was handled when the event was read
	return int64(size)
}

// IsAbout reports whether the event is about the runner with the given registration id. Names are reused, but ids are
// not. An unknown id (0) on either side matches.
func (e JobEvent) IsAbout(runnerID int64) bool {
	return e.RunnerID == 0 || runnerID == 0 || e.RunnerID == runnerID
}
