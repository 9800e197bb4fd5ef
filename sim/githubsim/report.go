// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// maxBreaches limits the list of broken invariants.
const maxBreaches = 1000

// breach records a broken invariant.
func (s *Server) breach(format string, args ...any) {
	if len(s.broken) < maxBreaches {
		s.broken = append(s.broken, fmt.Sprintf(format, args...))
	}
}

// Invariants lists broken invariants: a job that was lost or run twice, a busy runner that was ended, a job that was
// assigned above the announced capacity or to an unregistered runner. It is empty if all is well.
func (s *Server) Invariants() []string {
	s.rlock()
	defer s.mu.Unlock()
	return slices.Clone(s.broken)
}

// Leftovers lists what must not exist at the end of a test: unfinished jobs, registered runners, scale sets and open
// sessions.
func (s *Server) Leftovers() []string {
	s.rlock()
	defer s.mu.Unlock()
	var left []string
	for _, j := range s.jobs.ordered {
		if j.State != JobCompleted {
			left = append(left, fmt.Sprintf("job %s (%s) is %s", j.ID, j.Name, j.State))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.runners.byID)) {
		left = append(left, fmt.Sprintf("runner %s (%d) is registered", s.runners.byID[id].name, id))
	}
	for _, ss := range s.scaleSets.ordered {
		left = append(left, fmt.Sprintf("scale set %s (%d) exists", ss.name, ss.id))
		if ss.session != nil {
			left = append(left, fmt.Sprintf("scale set %s (%d) has a session of %s", ss.name, ss.id, ss.session.owner))
		}
	}
	return left
}

// Quantiles of durations; in nanoseconds in JSON.
type Quantiles struct {
	P50 time.Duration `json:"p50"`
	P95 time.Duration `json:"p95"`
	Max time.Duration `json:"max"`
}

// RunnerReport is a registered runner.
type RunnerReport struct {
	ID         int       `json:"id"`
	Name       string    `json:"name"`
	ScaleSetID int       `json:"scaleSetId"`
	Registered time.Time `json:"registered"`
	// EverSeen is true if a process has connected with its configuration.
	EverSeen bool `json:"everSeen"`
	Online   bool `json:"online"`
	// Labels and Scope ("orgs/acme") of a runner that the REST API registered.
	Labels  []string `json:"labels,omitempty"`
	Scope   string   `json:"scope,omitempty"`
	GroupID int      `json:"groupId,omitempty"`
	// Ended is true if its process has ended without a job: the registration leaks unless a client removes it.
	Ended bool   `json:"ended"`
	Job   string `json:"job,omitempty"`
}

// ScaleSetReport is a scale set.
type ScaleSetReport struct {
	ID      int      `json:"id"`
	Name    string   `json:"name"`
	Scope   string   `json:"scope"`
	GroupID int      `json:"groupId"`
	Labels  []string `json:"labels"`
	// Capacity is the capacity that the last poll announced.
	Capacity int `json:"capacity"`
	// SessionOwner is empty if there is no session.
	SessionOwner string `json:"sessionOwner,omitempty"`
	// Messages is the number of messages that are not deleted.
	Messages   int        `json:"messages"`
	Statistics Statistics `json:"statistics"`
}

// Report summarizes the state and the history.
type Report struct {
	Mode    Mode             `json:"mode"`
	Jobs    map[JobState]int `json:"jobs"`
	Results map[string]int   `json:"results"`
	// QueueWait is the time from queueing to start, over all started jobs.
	QueueWait   Quantiles `json:"queueWait"`
	RunnersMade int       `json:"runnersMade"`
	// IdleTime is the total time for which runners were online without a job.
	IdleTime     time.Duration    `json:"idleTime"`
	Runners      []RunnerReport   `json:"runners"`
	ScaleSets    []ScaleSetReport `json:"scaleSets"`
	SessionsOpen int              `json:"sessionsOpen"`
	// Requests by endpoint, including requests of runners.
	Requests map[Endpoint]int `json:"requests"`
	// Broken invariants, see [Server.Invariants].
	Broken []string `json:"broken"`
}

// Report returns a summary.
func (s *Server) Report() Report {
	s.rlock()
	defer s.mu.Unlock()
	report := Report{
		Mode: s.opts.Mode, Jobs: map[JobState]int{}, Results: map[string]int{}, RunnersMade: s.made,
		Requests: maps.Clone(s.requests), Broken: slices.Clone(s.broken), Runners: s.runnerReports(), IdleTime: s.idle,
	}
	for _, rn := range s.runners.byID {
		if !rn.idleSince.IsZero() {
			report.IdleTime += s.now().Sub(rn.idleSince)
		}
	}
	var waits []time.Duration
	for _, j := range s.jobs.ordered {
		report.Jobs[j.State]++
		if j.State == JobCompleted {
			report.Results[j.Result]++
		}
		if !j.Started.IsZero() {
			waits = append(waits, j.Started.Sub(j.Queued))
		}
	}
	report.QueueWait = quantiles(waits)
	for _, ss := range s.scaleSets.ordered {
		report.ScaleSets = append(report.ScaleSets, ss.report())
		if ss.session != nil {
			report.SessionsOpen++
		}
	}
	return report
}

func (s *Server) runnerReports() []RunnerReport {
	var out []RunnerReport
	for _, id := range slices.Sorted(maps.Keys(s.runners.byID)) {
		rn := s.runners.byID[id]
		r := RunnerReport{
			ID: id, Name: rn.name, ScaleSetID: rn.scaleSet.id, Registered: rn.created, EverSeen: rn.everSeen, Online: rn.online,
			Ended: rn.everSeen && rn.session == "" && rn.job == nil,
		}
		if rn.job != nil {
			r.Job = rn.job.ID
		}
		if ss := rn.scaleSet; ss.solo != nil {
			r.Scope, r.GroupID = ss.scope.key(), ss.group.id
			for _, l := range ss.labels {
				r.Labels = append(r.Labels, l.Name)
			}
		}
		out = append(out, r)
	}
	return out
}

func (ss *scaleSet) report() ScaleSetReport {
	r := ScaleSetReport{
		ID: ss.id, Name: ss.name, Scope: ss.scope.key(), GroupID: ss.group.id, Capacity: ss.capacity,
		Messages: len(ss.queue.messages), Statistics: ss.stats,
	}
	for _, l := range ss.labels {
		r.Labels = append(r.Labels, l.Name)
	}
	if ss.session != nil {
		r.SessionOwner = ss.session.owner
	}
	return r
}

// quantiles returns quantiles by the nearest-rank method.
func quantiles(all []time.Duration) Quantiles {
	if len(all) == 0 {
		return Quantiles{}
	}
	slices.Sort(all)
	at := func(p float64) time.Duration { return all[int(math.Ceil(p*float64(len(all))))-1] }
	return Quantiles{P50: at(0.5), P95: at(0.95), Max: all[len(all)-1]}
}

// ResetCounters resets the counts of requests and runners, and the list of broken invariants.
func (s *Server) ResetCounters() {
	s.lock()
	defer s.unlock()
	clear(s.requests)
	s.made, s.broken = 0, nil
}
