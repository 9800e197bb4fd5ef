// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim

import (
	"errors"
	"slices"
	"strings"
	"time"
)

// Job is a job to run.
type Job struct {
	// Repository is "owner/name". A missing repository is created, as a private one.
	Repository string `json:"repository"`
	// Workflow is the file below .github/workflows; "ci.yml" if empty.
	Workflow string `json:"workflow,omitempty"`
	// Name is the job's display name; "build" if empty.
	Name string `json:"name,omitempty"`
	// Labels are the required labels of a runner; at least one.
	Labels []string `json:"labels"`
	// Event is the event that started the workflow; "push" if empty.
	Event string `json:"event,omitempty"`
	// RunID groups jobs into one workflow run; 0 means a separate run.
	RunID int64 `json:"runId,omitempty"`
	// Waiting holds the job for the protection of its environment, until [Server.ApproveJob].
	Waiting bool `json:"waiting,omitempty"`
	// Duration of the job in real time.
	Duration time.Duration `json:"-"`
	// Script is run by a runner that can run scripts, like a workflow's steps; its exit code is the result. Duration
	// and Result are then ignored.
	Script string `json:"script,omitempty"`
	// Result of the job unless it is cancelled or lost; "succeeded" if empty.
	Result string `json:"result,omitempty"`
}

// JobState is the state of a job.
type JobState string

const (
	// JobWaiting means that the job waits for an approval, and is not in the queue.
	JobWaiting JobState = "waiting"
	// JobQueued means that the job waits for a scale set or a runner.
	JobQueued JobState = "queued"
	// JobAvailable means that the job is offered to a scale set and not acquired.
	JobAvailable JobState = "available"
	// JobAssigned means that the job is assigned to a scale set, and no runner has started it.
	JobAssigned JobState = "assigned"
	// JobRunning means that a runner runs the job.
	JobRunning JobState = "running"
	// JobCompleted means that the job has a result.
	JobCompleted JobState = "completed"
)

// Results of jobs, in the queue's format.
const (
	ResultSucceeded = "succeeded"
	ResultFailed    = "failed"
	ResultCanceled  = "canceled"
)

// JobTimeline is the history of a job. Times of events that have not happened are zero. If an event was repeated, its
// last time is kept, except for Queued.
type JobTimeline struct {
	ID string `json:"id"`
	// Number is the job's id in the REST API and in webhooks.
	Number     int64     `json:"number"`
	RunID      int64     `json:"runId"`
	RequestID  int64     `json:"requestId,omitempty"`
	Repository string    `json:"repository"`
	Workflow   string    `json:"workflow"`
	Name       string    `json:"name"`
	Labels     []string  `json:"labels"`
	State      JobState  `json:"state"`
	ScaleSetID int       `json:"scaleSetId,omitempty"`
	ScaleSet   string    `json:"scaleSet,omitempty"`
	RunnerID   int       `json:"runnerId,omitempty"`
	Runner     string    `json:"runner,omitempty"`
	Queued     time.Time `json:"queued,omitzero"`
	Available  time.Time `json:"available,omitzero"`
	Acquired   time.Time `json:"acquired,omitzero"`
	Assigned   time.Time `json:"assigned,omitzero"`
	Started    time.Time `json:"started,omitzero"`
	Finished   time.Time `json:"finished,omitzero"`
	Result     string    `json:"result,omitempty"`
	// Attempts counts the assignments to a scale set.
	Attempts int `json:"attempts"`
	// Starts counts the runners that started it.
	Starts int `json:"starts"`
	// Log is the end of its script's output.
	Log string `json:"log,omitempty"`
}

type job struct {
	JobTimeline
	spec      Job
	seq       int
	repo      *repository
	bucket    string
	lowLabels []string
	scaleSet  *scaleSet
	runner    *runner
	cancel    chan struct{} // closed to stop a running job
	cutShort  bool          // it ends with its own result when it stops
	excused   bool          // a fault is responsible for its loss
}

type jobIndex struct {
	byID       map[string]*job
	ordered    []*job
	byRequest  map[int64]*job
	buckets    map[string]*bucket
	runs       map[runKey]*workflowRun
	runsOf     map[*repository][]*workflowRun // oldest first
	unfinished int
	lastRun    int64
}

// firstJobNumber is the first id of a job in the REST API.
const firstJobNumber = 7_000_001

func newJobIndex() jobIndex {
	return jobIndex{
		byID: map[string]*job{}, byRequest: map[int64]*job{}, buckets: map[string]*bucket{}, lastRun: 5000,
		runs: map[runKey]*workflowRun{}, runsOf: map[*repository][]*workflowRun{},
	}
}

func (j *Job) setDefaults() {
	orElse := func(s *string, otherwise string) {
		if *s == "" {
			*s = otherwise
		}
	}
	orElse(&j.Workflow, "ci.yml")
	orElse(&j.Name, "build")
	orElse(&j.Event, "push")
	orElse(&j.Result, ResultSucceeded)
}

// AddJob queues a job and returns its id. It returns an error if there is no label or if the repository is not
// "owner/name".
func (s *Server) AddJob(spec Job) (string, error) {
	if len(spec.Labels) == 0 {
		return "", errors.New("a job needs at least one label")
	}
	spec.setDefaults()
	s.lock()
	defer s.unlock()
	repo := s.world.repos[strings.ToLower(spec.Repository)]
	if repo == nil {
		var err error
		if repo, err = s.world.addRepository(Repository{FullName: spec.Repository}); err != nil {
			return "", err
		}
	}
	j := s.newJob(spec, repo)
	if spec.Waiting {
		j.State = JobWaiting
		s.emitJob(j, "waiting")
		return j.ID, nil
	}
	s.emitJob(j, "queued")
	s.queue(j)
	return j.ID, nil
}

// ApproveJob queues a job that waits for an approval. It returns false if no such job waits.
func (s *Server) ApproveJob(id string) bool {
	s.lock()
	defer s.unlock()
	j := s.jobs.byID[id]
	if j == nil || j.State != JobWaiting {
		return false
	}
	j.setState(JobQueued)
	s.emitJob(j, "queued")
	s.queue(j)
	return true
}

// queue adds a job to the queue, and offers it to scale sets first, then to runners without one, in the order of their
// creation.
func (s *Server) queue(j *job) {
	if s.opts.FailWithoutRunner && !s.hasRunnerFor(j) {
		s.finish(j, ResultFailed)
		return
	}
	s.enqueue(j)
	for _, all := range [][]*scaleSet{s.scaleSets.ordered, s.runners.solos} {
		for _, ss := range all {
			if ss.room() > 0 && s.accepts(ss, j.repo, j.lowLabels) {
				s.dispatch(ss)
				return
			}
		}
	}
}

func (s *Server) newJob(spec Job, repo *repository) *job {
	if spec.RunID == 0 {
		s.jobs.lastRun++
		spec.RunID = s.jobs.lastRun
	}
	j := &job{spec: spec, seq: len(s.jobs.ordered), repo: repo, cancel: make(chan struct{})}
	j.JobTimeline = JobTimeline{
		ID: s.newID(), Number: firstJobNumber + int64(len(s.jobs.ordered)), RunID: spec.RunID, Repository: repo.FullName, Workflow: spec.Workflow, Name: spec.Name,
		Labels: slices.Clone(spec.Labels), State: JobQueued, Queued: s.now(),
	}
	for _, l := range spec.Labels {
		j.lowLabels = append(j.lowLabels, strings.ToLower(l))
	}
	slices.Sort(j.lowLabels)
	j.lowLabels = slices.Compact(j.lowLabels)
	j.bucket = strings.ToLower(repo.FullName) + "|" + strings.Join(j.lowLabels, "|")
	if s.opts.Mode == Acquire {
		j.RequestID = int64(len(s.jobs.ordered) + 1)
		s.jobs.byRequest[j.RequestID] = j
	}
	s.jobs.byID[j.ID] = j
	s.jobs.ordered = append(s.jobs.ordered, j)
	s.jobs.addToRun(j)
	s.jobs.unfinished++
	return j
}

// hasRunnerFor reports whether any scale set or runner could get the job.
func (s *Server) hasRunnerFor(j *job) bool {
	for _, all := range [][]*scaleSet{s.scaleSets.ordered, s.runners.solos} {
		for _, ss := range all {
			if s.accepts(ss, j.repo, j.lowLabels) {
				return true
			}
		}
	}
	return false
}

// setState changes the job's state and updates the scale set's statistics.
func (j *job) setState(to JobState) {
	j.count(-1)
	j.State = to
	j.count(+1)
}

func (j *job) count(by int) {
	if j.scaleSet == nil {
		return
	}
	stats := &j.scaleSet.stats
	switch j.State {
	case JobAvailable:
		stats.Available += by
	case JobAssigned:
		stats.Assigned += by
	case JobRunning:
		stats.Assigned += by
		stats.Running += by
	}
}

// CancelJob cancels a job: at once if no runner has started it, or else when its runner has stopped. It returns false
// if the job is unknown or finished.
func (s *Server) CancelJob(id string) bool {
	s.lock()
	defer s.unlock()
	j := s.jobs.byID[id]
	if j == nil || j.State == JobCompleted {
		return false
	}
	if j.State == JobRunning {
		j.askToStop()
		return true
	}
	if rn := j.runner; rn != nil {
		s.release(rn)
	} else if j.State == JobAssigned {
		j.scaleSet.unwait(j)
	}
	s.finish(j, ResultCanceled)
	return true
}

// CutShort ends running jobs now with their results, whatever their Duration, so that tests need not wait. It returns
// false if one of them has not started; that job is not affected.
func (s *Server) CutShort(ids ...string) bool {
	s.lock()
	defer s.unlock()
	begun := true
	for _, id := range ids {
		switch j := s.jobs.byID[id]; j.State {
		case JobRunning:
			j.cutShort = true
			j.askToStop()
		case JobCompleted:
		default:
			begun = false
		}
	}
	return begun
}

func (j *job) askToStop() {
	select {
	case <-j.cancel:
	default:
		close(j.cancel)
	}
}

// finish ends a job and makes room for the next.
func (s *Server) finish(j *job, result string) {
	offered := j.State == JobAvailable
	j.setState(JobCompleted)
	j.Finished, j.Result = s.now(), result
	s.jobs.unfinished--
	s.emitJob(j, "completed")
	ss := j.scaleSet
	if ss == nil {
		return
	}
	if offered {
		delete(ss.queue.offered, j.ID)
	} else {
		s.tell(j, "JobCompleted")
	}
	s.dispatch(ss)
}

// tell adds an event about the job to its scale set's queue.
func (s *Server) tell(j *job, messageType string) {
	if j.scaleSet.gone || j.scaleSet.solo != nil {
		return
	}
	e := jobEvent{
		MessageType: messageType, RunnerRequestID: j.RequestID, RepositoryName: j.repo.name, OwnerName: j.repo.owner,
		JobID: j.ID, JobDisplayName: j.Name, WorkflowRunID: j.RunID, EventName: j.spec.Event, RequestLabels: j.Labels,
		JobWorkflowRef: j.Repository + "/.github/workflows/" + j.Workflow + "@refs/heads/main",
		QueueTime:      j.Queued.UTC(), ScaleSetAssignTime: j.Assigned.UTC(),
	}
	switch messageType {
	case "JobStarted":
		e.RunnerID, e.RunnerName, e.RunnerAssignTime = j.RunnerID, j.Runner, j.Started.UTC()
	case "JobCompleted":
		e.RunnerID, e.RunnerName, e.RunnerAssignTime = j.RunnerID, j.Runner, j.Started.UTC()
		e.FinishTime, e.Result = s.now().UTC(), ResultCanceled
		if j.State == JobCompleted {
			e.Result = j.Result
		}
	case "JobAvailable":
		e.AcquireJobURL = "acquirejobs"
	}
	j.scaleSet.queue.push(e)
}

// Jobs returns the history of each job, oldest first.
func (s *Server) Jobs() []JobTimeline {
	s.rlock()
	defer s.mu.Unlock()
	out := make([]JobTimeline, 0, len(s.jobs.ordered))
	for _, j := range s.jobs.ordered {
		out = append(out, j.JobTimeline)
	}
	return out
}
