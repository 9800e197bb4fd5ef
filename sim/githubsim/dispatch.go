// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim

import (
	"container/list"
	"net/http"
	"slices"
	"strings"
	"time"
)

// maxAttempts is how often a job is assigned if no runner picks it up.
const maxAttempts = 3

// bucket holds the queued jobs that look alike to a scale set, oldest first.
type bucket struct {
	repo   *repository
	labels []string
	jobs   []*job
}

// head drops jobs that are no longer queued and returns the oldest job.
func (b *bucket) head() *job {
	for len(b.jobs) > 0 && b.jobs[0].State != JobQueued {
		b.jobs = b.jobs[1:]
	}
	if len(b.jobs) == 0 {
		return nil
	}
	return b.jobs[0]
}

// accepts reports whether a job of the repository with these labels, in lower case, may go to the scale set.
func (s *Server) accepts(ss *scaleSet, repo *repository, labels []string) bool {
	switch ss.scope.kind {
	case repoScope:
		if !strings.EqualFold(ss.scope.name, repo.FullName) {
			return false
		}
	case orgScope:
		if !strings.EqualFold(ss.scope.name, repo.owner) || !ss.group.sees(repo) {
			return false
		}
	case enterpriseScope:
		if !strings.EqualFold(ss.scope.name, s.world.enterprises[strings.ToLower(repo.owner)]) || !ss.group.sees(repo) {
			return false
		}
	}
	return !slices.ContainsFunc(labels, func(wanted string) bool {
		return !slices.ContainsFunc(ss.labels, func(l label) bool { return strings.EqualFold(l.Name, wanted) })
	})
}

// room returns how many more jobs the scale set accepts.
func (ss *scaleSet) room() int {
	if rn := ss.solo; rn != nil {
		if rn.inLine == nil || rn.job != nil || rn.gone {
			return 0
		}
		return 1
	}
	if ss.gone || ss.session == nil {
		return 0
	}
	return ss.capacity - ss.stats.Assigned - ss.stats.Available
}

// enqueue puts a job at the end of the queue.
func (s *Server) enqueue(j *job) {
	b := s.jobs.buckets[j.bucket]
	if b == nil {
		b = &bucket{repo: j.repo, labels: j.lowLabels}
		s.jobs.buckets[j.bucket] = b
	}
	b.jobs = append(b.jobs, j)
}

// requeue returns a job from its scale set to the queue.
func (s *Server) requeue(j *job) {
	j.setState(JobQueued)
	j.scaleSet = nil
	j.ScaleSetID, j.ScaleSet = 0, ""
	s.enqueue(j)
}

// dispatch assigns to the scale set the oldest jobs that it accepts and has room for.
func (s *Server) dispatch(ss *scaleSet) {
	room := ss.room()
	if room <= 0 {
		return
	}
	var matching []*bucket
	for key, b := range s.jobs.buckets {
		switch {
		case b.head() == nil:
			delete(s.jobs.buckets, key)
		case s.accepts(ss, b.repo, b.labels):
			matching = append(matching, b)
		}
	}
	for ; room > 0; room-- {
		var oldest *job
		for _, b := range matching {
			if head := b.head(); head != nil && (oldest == nil || head.seq < oldest.seq) {
				oldest = head
			}
		}
		if oldest == nil {
			return
		}
		s.give(oldest, ss)
	}
}

func (s *Server) dispatchAll() {
	for _, ss := range s.scaleSets.ordered {
		s.dispatch(ss)
	}
	for _, ss := range s.runners.solos {
		s.dispatch(ss)
	}
}

// give assigns a queued job, or offers it if jobs have to be acquired.
func (s *Server) give(j *job, ss *scaleSet) {
	j.scaleSet, j.ScaleSetID, j.ScaleSet = ss, ss.id, ss.name
	if s.opts.Mode == AutoAssign || ss.solo != nil {
		s.assign(j)
		if ss.solo == nil && ss.stats.Assigned > ss.capacity {
			s.breach("job %s was assigned above the announced capacity %d of scale set %s", j.ID, ss.capacity, ss.name)
		}
		return
	}
	j.State = JobQueued
	j.setState(JobAvailable)
	j.Available = s.now()
	ss.queue.offered[j.ID] = j
	s.tell(j, "JobAvailable")
}

// assign assigns a job to its scale set, for any of its runners.
func (s *Server) assign(j *job) {
	j.setState(JobAssigned)
	j.Assigned = s.now()
	j.Attempts++
	s.tell(j, "JobAssigned")
	j.scaleSet.waiting = append(j.scaleSet.waiting, j)
	s.watchPickup(j, j.Attempts)
	s.pair(j.scaleSet)
}

// watchPickup returns a job to the queue if no runner starts it in time, later with each attempt.
func (s *Server) watchPickup(j *job, attempt int) {
	if s.opts.PickupTimeout <= 0 {
		return
	}
	s.after(s.opts.PickupTimeout*time.Duration(attempt), func() {
		if j.State != JobAssigned || j.Attempts != attempt || j.runner != nil {
			return
		}
		ss := j.scaleSet
		ss.unwait(j)
		if attempt >= maxAttempts {
			s.finish(j, ResultCanceled)
			s.breach("job %s is lost: no runner picked it up in %d attempts", j.ID, attempt)
			return
		}
		s.tell(j, "JobCompleted")
		s.requeue(j)
		s.dispatchAll()
	})
}

func (ss *scaleSet) unwait(j *job) {
	ss.waiting = slices.DeleteFunc(ss.waiting, func(other *job) bool { return other == j })
}

// pair assigns waiting jobs to waiting runners.
func (s *Server) pair(ss *scaleSet) {
	for len(ss.waiting) > 0 {
		rn := ss.free.pop()
		if rn == nil {
			return
		}
		s.handOver(ss, rn)
	}
}

// handOver assigns the scale set's oldest waiting job to a runner.
func (s *Server) handOver(ss *scaleSet, rn *runner) {
	j := ss.waiting[0]
	ss.waiting = ss.waiting[1:]
	if rn.gone {
		s.breach("job %s was given to runner %s, which is not registered", j.ID, rn.name)
	}
	s.setJob(rn, j)
	j.runner = rn
	rn.wake()
}

// release takes an unstarted job from a runner.
func (s *Server) release(rn *runner) *job {
	j := rn.job
	j.runner = nil
	s.setJob(rn, nil)
	return j
}

// returnJob makes the runner's job available to other runners.
func (s *Server) returnJob(rn *runner) {
	j := s.release(rn)
	if j.scaleSet.gone || j.scaleSet.solo != nil {
		s.requeue(j)
		s.dispatchAll()
		return
	}
	j.scaleSet.waiting = slices.Insert(j.scaleSet.waiting, 0, j)
	s.pair(j.scaleSet)
}

// setJob and setOnline update the statistics about runners.
func (s *Server) setJob(rn *runner, j *job) {
	rn.count(-1)
	rn.job = j
	rn.count(+1)
	s.noteIdle(rn)
}

func (s *Server) setOnline(rn *runner, online bool) {
	rn.count(-1)
	rn.online = online
	rn.count(+1)
	s.noteIdle(rn)
}

// noteIdle adds up the time for which runners are online without a job.
func (s *Server) noteIdle(rn *runner) {
	idle := rn.online && rn.job == nil
	switch {
	case idle && rn.idleSince.IsZero():
		rn.idleSince = s.now()
	case !idle && !rn.idleSince.IsZero():
		s.idle += s.now().Sub(rn.idleSince)
		rn.idleSince = time.Time{}
	}
}

func (rn *runner) count(by int) {
	switch {
	case rn.job != nil:
		rn.scaleSet.stats.Busy += by
	case rn.online:
		rn.scaleSet.stats.Idle += by
	}
}

// wake ends a held poll of the runner.
func (rn *runner) wake() {
	if rn.delivered != nil {
		close(rn.delivered)
		rn.delivered = nil
	}
}

// runnerQueue is the queue of runners that wait for a job.
type runnerQueue struct{ line list.List }

func (q *runnerQueue) push(rn *runner) {
	if rn.inLine == nil {
		rn.inLine = q.line.PushBack(rn)
	}
}

func (q *runnerQueue) remove(rn *runner) {
	if rn.inLine != nil {
		q.line.Remove(rn.inLine)
		rn.inLine = nil
	}
}

func (q *runnerQueue) pop() *runner {
	first := q.line.Front()
	if first == nil {
		return nil
	}
	rn := first.Value.(*runner)
	q.remove(rn)
	return rn
}

// acquireJobs assigns offered jobs to the scale set of the queue token. The answer contains only ids that were still
// available.
func (s *Server) acquireJobs(r *http.Request) answer {
	if s.opts.Mode != Acquire {
		return answer{status: http.StatusNotFound}
	}
	var ids []int64
	err := decode(r, &ids)
	s.lock()
	defer s.unlock()
	se, refusal := s.versionedCaller(r)
	if se == nil {
		return refusal
	}
	if err != nil {
		return serviceError(http.StatusBadRequest, "ArgumentException", "The body is not a list of ids.")
	}
	won := []int64{}
	for _, id := range ids {
		j := s.jobs.byRequest[id]
		if j == nil || j.State != JobAvailable || j.scaleSet != se.scaleSet {
			continue
		}
		delete(j.scaleSet.queue.offered, j.ID)
		j.Acquired = s.now()
		s.assign(j)
		won = append(won, id)
	}
	return ok(listOf(won))
}

func (s *Server) acquirableJobs(_ *http.Request, ss *scaleSet) answer {
	type acquirable struct {
		AcquireJobURL   string   `json:"acquireJobUrl"`
		MessageType     string   `json:"messageType"`
		RunnerRequestID int64    `json:"runnerRequestId"`
		RepositoryName  string   `json:"repositoryName"`
		OwnerName       string   `json:"ownerName"`
		JobWorkflowRef  string   `json:"jobWorkflowRef"`
		EventName       string   `json:"eventName"`
		RequestLabels   []string `json:"requestLabels"`
	}
	if len(ss.queue.offered) == 0 {
		return noContent()
	}
	var jobs []acquirable
	for _, j := range ss.queue.offered {
		jobs = append(jobs, acquirable{
			AcquireJobURL: "acquirejobs", MessageType: "JobAvailable", RunnerRequestID: j.RequestID,
			RepositoryName: j.repo.name, OwnerName: j.repo.owner, JobWorkflowRef: j.Workflow,
			EventName: j.spec.Event, RequestLabels: j.Labels,
		})
	}
	slices.SortFunc(jobs, func(a, b acquirable) int { return int(a.RunnerRequestID - b.RunnerRequestID) })
	return ok(listOf(jobs))
}
