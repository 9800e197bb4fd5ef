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
	// Opening is the state until the first attempt is answered.
	Opening State = "Opening"
	// Listening means that a session is open.
	Listening State = "Listening"
	// Refused means that an earlier session blocks a new one, because it was not closed. It belongs to this pool, or to
	// a deleted pool of this cluster. GitHub ends it 60 to 92 s after a crash.
	Refused State = "Refused"
	// OwnedElsewhere means that another cluster or pool has the session.
	OwnedElsewhere State = "OwnedElsewhere"
	// Failing means that Err prevents the session from working. If IsNotFound(Err) is true, the scale set does not
	// exist.
	Failing State = "Failing"
)

// Snapshot is the state of a Listener at one moment. Statistics and the events of the same message are in the same
// Snapshot or in neither.
type Snapshot struct {
	State State
	// Since is when the state or the kind of Err last changed.
	Since time.Time
	// Message is the reason why the state is not Listening, without the ids that differ with each attempt. It is empty
	// if the state is Listening.
	Message string
	// Err is the error that led to the state; nil if there is none.
	Err error
	// Owner is the owner of the blocking session if the state is Refused or OwnedElsewhere; empty if GitHub did not
	// name it.
	Owner string
	// Session is the id of the current or last session.
	Session string

	// Known is true if statistics have arrived. Without them, Assigned is meaningless.
	Known bool
	// Assigned is the number of jobs that are assigned and not completed, including running jobs.
	Assigned int
	// Statistics are the latest statistics.
	Statistics Statistics
	// Counted is when the statistics arrived.
	Counted time.Time

	// Started and Completed hold the last event of each type by runner name, each for mostRunners runners at most.
	Started, Completed map[string]JobEvent
}

// mostRunners is the maximum number of runners whose events a Listener remembers until Retain is called, because a
// server could name any number of runners.
const mostRunners = 10_000

// observation guards the Snapshot with two locks, so that the state can be read while events are copied. Copying can
// take a while, because a server can send events of thousands of runners. A caller that needs both locks takes events
// first.
type observation struct {
	keep func(lose func()) *share.Hold

	events             sync.Mutex // guards the events of runners
	started, completed map[string]JobEvent
	hold               *share.Hold // of the events of runners

	mu       sync.Mutex // guards the rest, and is held briefly
	snapshot Snapshot   // without the events of runners
	messages uint64     // the number of messages so far
}

func newObservation(keep func(lose func()) *share.Hold) *observation {
	o := &observation{keep: keep, snapshot: Snapshot{State: Opening}}
	o.begin()
	return o
}

// begin forgets all events of runners. It is called at the start, and when other answers need the memory. The events
// are not lost, because the Recorder stores them.
func (o *observation) begin() {
	o.started, o.completed = map[string]JobEvent{}, map[string]JobEvent{}
	o.hold = o.keep(func() { go o.forget() }) // in a goroutine, because lose is called with a lock held
}

func (o *observation) forget() {
	o.events.Lock()
	defer o.events.Unlock()
	o.begin()
}

func (o *observation) get() Snapshot {
	o.events.Lock()
	defer o.events.Unlock()
	s := o.brief()
	s.Started, s.Completed = maps.Clone(o.started), maps.Clone(o.completed)
	return s
}

// brief returns the state without the events of runners. It does not wait for the lock of the events.
func (o *observation) brief() Snapshot {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.snapshot
}

// jobs returns the number of jobs that are assigned and not completed.
func (o *observation) jobs() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.snapshot.Assigned
}

// setState sets the state. It reports whether the state, the kind of the error or the owner changed.
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

// opened sets the id of the session, and reports whether it is another session than before.
func (o *observation) opened(session string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	another := session != o.snapshot.Session
	o.snapshot.Session = session
	return another
}

// count stores statistics that the caller requested after the given number of messages. It ignores them if another
// message has arrived since, because the message's statistics are newer. It reports whether the statistics changed.
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

// add stores the statistics and the events of a message, and reports whether anything changed.
func (o *observation) add(m *message, now time.Time) bool {
	o.events.Lock()
	defer o.events.Unlock()
	changed := o.countMessage(m.statistics, now)
	for _, event := range durable(m.events) {
		if event.RunnerName == "" {
			continue
		}
		changed = true
		last := o.started
		if event.Type == JobCompleted {
			last = o.completed
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

// countMessage stores the statistics of a message.
func (o *observation) countMessage(statistics *Statistics, now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.messages++
	return o.countLocked(statistics, now)
}

// progress returns the number of messages so far, and when the statistics arrived.
func (o *observation) progress() (messages uint64, counted time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.messages, o.snapshot.Counted
}

func (o *observation) retain(keep func(runnerName string) bool) {
	o.events.Lock()
	defer o.events.Unlock()
	gone := func(name string, event JobEvent) bool {
		isGone := !keep(name)
		if isGone {
			o.hold.Add(-event.size())
		}
		return isGone
	}
	maps.DeleteFunc(o.started, gone)
	maps.DeleteFunc(o.completed, gone)
}

// end releases the memory of the events.
func (o *observation) end() {
	o.events.Lock()
	defer o.events.Unlock()
	o.hold.Leave()
}
