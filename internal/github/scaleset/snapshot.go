// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"maps"
	"sync"
	"time"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/share"
)

// State of a Listener.
type State string

// States of a Listener.
const (
	// Opening is true until the first answer to the first attempt.
	Opening State = "Opening"
	// Listening is true while a session is open.
	Listening State = "Listening"
	// Refused is true while a session of our own that wasn't closed blocks a new one, for
	// 60 to 92 s after a crash.
	Refused State = "Refused"
	// OwnedElsewhere is true while another cluster or pool has the session.
	OwnedElsewhere State = "OwnedElsewhere"
	// Failing is true while Err keeps the session from working. IsNotFound(Err) means that
	// the scale set is gone.
	Failing State = "Failing"
)

// Snapshot is what a Listener knows at one moment. Statistics and the events that
// came in the same message are in the same Snapshot or in neither.
type Snapshot struct {
	State State
	// Since when the state, and the kind of Err, are these.
	Since time.Time
	// Message says why the state is not Listening, without ids that differ each time; empty
	// when it is Listening.
	Message string
	// Err is why, when there is an error.
	Err error
	// Owner of the session in the way, when Refused or OwnedElsewhere; empty if GitHub didn't name it.
	Owner string
	// Session is the id of the one that is open, or was last.
	Session string

	// Known says whether statistics were ever seen; without them Assigned says nothing.
	Known bool
	// Assigned is how many jobs are assigned and not completed, those running included.
	Assigned int
	// Statistics as GitHub last had them.
	Statistics Statistics
	// Counted is when they came.
	Counted time.Time

	// Started and Completed are the last such event of each runner, by the runner's name, of mostRunners at most.
	Started, Completed map[string]JobEvent
}

// mostRunners bounds of how many runners a Listener remembers events until Retain: a server may name any.
const mostRunners = 10_000

// observation is the Snapshot under its lock.
type observation struct {
	keep func(lose func()) *share.Hold

	mu       sync.Mutex
	snapshot Snapshot
	messages uint64      // how many messages were taken in
	hold     *share.Hold // of the events of runners
}

func newObservation(keep func(lose func()) *share.Hold) *observation {
	o := &observation{keep: keep, snapshot: Snapshot{State: Opening}}
	o.begin()
	return o
}

// begin remembers no event of a runner, from the beginning or because others need the room: each is recorded elsewhere as well.
func (o *observation) begin() {
	o.snapshot.Started, o.snapshot.Completed = map[string]JobEvent{}, map[string]JobEvent{}
	o.hold = o.keep(func() { go o.forget() }) // it is called under a lock
}

func (o *observation) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.begin()
}

func (o *observation) get() Snapshot {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.snapshot
	s.Started, s.Completed = maps.Clone(s.Started), maps.Clone(s.Completed)
	return s
}

func (o *observation) brief() Snapshot {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.snapshot
	s.Started, s.Completed = nil, nil
	return s
}

// jobs is how many jobs are assigned and not completed.
func (o *observation) jobs() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.snapshot.Assigned
}

// setState says whether anything but the wording changed.
func (o *observation) setState(state State, owner string, err error, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := &o.snapshot
	isOther := s.State != state || github.KindOf(s.Err) != github.KindOf(err)
	if isOther {
		s.Since = now
	}
	changed := isOther || s.Owner != owner
	s.State, s.Owner, s.Err, s.Message = state, owner, err, ""
	if err != nil {
		s.Message = github.Summary(err)
	}
	return changed
}

// opened takes a session in, and says whether it is another one.
func (o *observation) opened(session string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	another := session != o.snapshot.Session
	o.snapshot.Session = session
	return another
}

// count takes statistics in, unless a message was taken in since the given number of
// them: its own are newer than an answer that was on its way.
func (o *observation) count(statistics *Statistics, since uint64, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.messages != since {
		return false
	}
	return o.countLocked(statistics, now)
}

func (o *observation) countLocked(statistics *Statistics, now time.Time) bool {
	if statistics == nil {
		return false
	}
	s := &o.snapshot
	s.Counted = now
	changed := !s.Known || s.Statistics != *statistics
	s.Known, s.Statistics = true, *statistics
	s.Assigned = max(statistics.AssignedJobs, statistics.RunningJobs)
	return changed
}

// add takes a message in, whole. It says whether anything changed.
func (o *observation) add(m *message, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.messages++
	changed := o.countLocked(m.statistics, now)
	for _, event := range durable(m.events) {
		if event.RunnerName == "" {
			continue
		}
		changed = true
		last := o.snapshot.Started
		if event.Type == JobCompleted {
			last = o.snapshot.Completed
		}
		before, known := last[event.RunnerName]
		if !known && len(last) >= mostRunners {
			continue
		}
		size := event.size()
		if known {
			size -= before.size()
		}
		if o.hold.Add(size) {
			last[event.RunnerName] = event
		}
	}
	return changed
}

// progress is how many messages were taken in, and when the statistics came.
func (o *observation) progress() (messages uint64, counted time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.messages, o.snapshot.Counted
}

func (o *observation) retain(keep func(runnerName string) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	gone := func(name string, event JobEvent) bool {
		isGone := !keep(name)
		if isGone {
			o.hold.Add(-event.size())
		}
		return isGone
	}
	maps.DeleteFunc(o.snapshot.Started, gone)
	maps.DeleteFunc(o.snapshot.Completed, gone)
}

// end has what is known take no room any more: nobody asks for it.
func (o *observation) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hold.Leave()
}
