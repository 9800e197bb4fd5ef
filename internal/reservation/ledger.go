// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package reservation tracks the jobs of a pool that GitHub's events report. Jobs are identified by their ids, and an
// event moves its job only to a later state, so events may arrive in any order and any number of times. The package is
// pure. The number of jobs is limited, and each takes a few bytes in the encoded form.
package reservation

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// State is the state of a job. An event never moves its job to a smaller state. But a Running job becomes Elsewhere
// when its runner is gone or has another job, and Reconcile may move a job from Queued back to Waiting.
type State uint8

// States.
const (
	// Waiting jobs wait for an approval or another rule of their environment, and need no runner yet.
	Waiting State = iota + 1
	// Queued jobs need a runner.
	Queued
	// Elsewhere is the state of a job that runs on a runner outside of the pool.
	Elsewhere
	// Running jobs have a runner of the pool.
	Running
	// Done jobs have ended.
	Done
)

// Limits.
const (
	// MaxJobs is the maximum number of unfinished jobs in a ledger. When there is room again, Corral reads the other
	// jobs from GitHub's lists.
	MaxJobs = 20_000
	// MaxDone is the maximum number of ended jobs (Done or Elsewhere) that a ledger remembers, so that a late event
	// does not count them again. It forgets the oldest first.
	MaxDone = 8_192
	// DoneFor is how long an ended job is remembered.
	DoneFor = 2 * time.Hour
	// Settle is how far GitHub's lists may lag behind its events. An event takes precedence over a list if it arrived
	// less than Settle before the listing began, or later.
	Settle = 30 * time.Second
	// maxRepositories limits the number of repositories whose names a ledger keeps.
	maxRepositories = 2_000
	// maxName is the maximum length of a name in bytes.
	maxName = 200
)

// Event is an event about a job.
type Event struct {
	// ID of the job: workflow_job.id.
	ID int64
	// State that it has reached.
	State State
	// Repository as OWNER/NAME.
	Repository string
	// Runner is the runner of a Running job.
	Runner string
}

// Ledger holds a pool's jobs. It is not safe for concurrent use.
type Ledger struct {
	jobs  map[int64]job
	on    map[string]int64 // the job of each runner
	count [Done + 1]int
	repos names

	// elapsed is the reading of the expiry clock at the time at. The clock stands still while the ledger is paused.
	elapsed time.Duration
	at      time.Time
	begun   time.Time
	paused  bool
	dropped int // see Counts.Dropped
}

// job takes 40 bytes, so that ten thousand of them are negligible.
type job struct {
	state  State
	news   uint32 // Ledger.elapsed in seconds at the last event or list
	repo   uint16 // index in Ledger.repos
	taken  int64  // seconds since Ledger.begun at the last event or list
	runner string
}

// live reports whether a job is unfinished from the pool's point of view.
func (s State) live() bool { return s == Waiting || s == Queued || s == Running }

// New returns an empty ledger. Its expiry clock stands still until Pause(false) is called.
func New(now time.Time) *Ledger {
	return &Ledger{jobs: map[int64]job{}, on: map[string]int64{}, repos: newNames(), at: now, begun: now, paused: true}
}

// Counts summarizes a ledger.
type Counts struct {
	// Queued is the number of jobs that wait for a runner, Running the number of jobs on runners of the pool.
	Queued, Running int
	// Waiting is the number of jobs that wait for something else.
	Waiting int
	// Ended is the number of remembered jobs that need no more runners of the pool (Done or Elsewhere).
	Ended int
	// Dropped is the number of events that were dropped because there was no room for their jobs. It is reset when
	// there is room again.
	Dropped int
}

// Jobs returns how many runners the jobs need.
func (c Counts) Jobs() int { return c.Queued + c.Running }

// Counts returns a summary of the ledger.
func (l *Ledger) Counts() Counts {
	return Counts{Queued: l.count[Queued], Running: l.count[Running], Waiting: l.count[Waiting], Ended: l.count[Elsewhere] + l.count[Done], Dropped: l.dropped}
}

// Pause stops or resumes the expiry clock of waiting jobs. The caller must stop it while the pool has its maximum
// number of runners, because a waiting job cannot get a runner then.
func (l *Ledger) Pause(paused bool, now time.Time) {
	l.advance(now)
	l.paused = paused
}

func (l *Ledger) advance(now time.Time) {
	if d := now.Sub(l.at); d > 0 {
		if !l.paused {
			l.elapsed += d
		}
		l.at = now
	}
}

// Has returns the state of a job; 0 if the job is unknown.
func (l *Ledger) Has(id int64) State { return l.jobs[id].state }

// Record adds an event about a job, and reports whether the ledger changed. It ignores an event whose state is not
// larger than the known state of the job.
func (l *Ledger) Record(e Event, now time.Time) bool {
	if e.State < Waiting || e.State > Done {
		return false
	}
	l.advance(now)
	before := l.jobs[e.ID]
	if e.State <= before.state {
		return false
	}
	if before.state == 0 && e.State.live() && l.live() >= MaxJobs {
		l.dropped++
		return false
	}
	repo := before.repo
	if repo == 0 {
		repo = l.repos.index(e.Repository)
	}
	l.put(e.ID, job{state: e.State, news: l.seconds(), repo: repo, taken: l.mark(now), runner: short(e.Runner)})
	l.bound()
	return true
}

// Refuse counts, as dropped, an event that the caller did not record because of a limit outside this ledger.
func (l *Ledger) Refuse() { l.dropped++ }

// Len returns the number of known jobs, including ended ones.
func (l *Ledger) Len() int { return len(l.jobs) }

// put adds or replaces a job. A runner has one job at a time: if two jobs have the same runner, the one with the
// smaller id becomes Elsewhere.
func (l *Ledger) put(id int64, j job) {
	l.Drop(id)
	if j.state == Running && j.runner != "" {
		if other, taken := l.on[j.runner]; taken && other > id {
			j.state = Elsewhere
		} else {
			if taken {
				former := l.jobs[other]
				former.state = Elsewhere
				l.put(other, former)
			}
			l.on[j.runner] = id
		}
	}
	if j.state != Running {
		j.runner = ""
	}
	l.count[j.state]++
	l.jobs[id] = j
}

func (l *Ledger) live() int { return l.count[Waiting] + l.count[Queued] + l.count[Running] }

func (l *Ledger) seconds() uint32 {
	return uint32(min(l.elapsed/time.Second, math.MaxUint32)) //nolint:gosec // it is bounded
}

// mark returns a time in seconds since the ledger began. Differences within a process do not depend on the wall clock.
func (l *Ledger) mark(t time.Time) int64 { return int64(t.Sub(l.begun) / time.Second) }

func short(name string) string { return name[:min(len(name), maxName)] }

// Drop removes a job without remembering it, for example because it belongs to another pool.
func (l *Ledger) Drop(id int64) {
	j, ok := l.jobs[id]
	if !ok {
		return
	}
	l.count[j.state]--
	delete(l.jobs, id)
	if j.runner != "" && l.on[j.runner] == id {
		delete(l.on, j.runner)
	}
}

// Retain marks the running jobs of runners for which keep returns false as Elsewhere, because a job whose runner is
// gone no longer needs a runner. It reports whether there were any. It returns at once if no job is running.
func (l *Ledger) Retain(keep func(runner string) bool, now time.Time) bool {
	if l.count[Running] == 0 {
		return false
	}
	l.advance(now)
	changed := false
	for id, j := range l.jobs {
		if j.state == Running && !keep(j.runner) {
			j.state, j.news, j.taken = Elsewhere, l.seconds(), l.mark(now)
			l.put(id, j)
			changed = true
		}
	}
	l.bound()
	return changed
}

// Expire removes Queued and Waiting jobs that had no event for hold, and ended jobs that are older than DoneFor, both
// measured by the expiry clock. It returns the number of removed Queued and Waiting jobs.
func (l *Ledger) Expire(hold time.Duration, now time.Time) int {
	l.advance(now)
	expired := 0
	if l.live() < MaxJobs {
		l.dropped = 0
	}
	for id, j := range l.jobs {
		age := l.Quiet(id)
		switch {
		case (j.state == Queued || j.state == Waiting) && age >= hold:
			expired++
			l.Drop(id)
		case !j.state.live() && age >= DoneFor:
			l.Drop(id)
		}
	}
	return expired
}

// Quiet returns the time since the last event or list about a job, by the expiry clock.
func (l *Ledger) Quiet(id int64) time.Duration {
	seconds := l.seconds()
	return time.Duration(seconds-min(l.jobs[id].news, seconds)) * time.Second
}

// bound forgets the oldest ended jobs when there are more than MaxDone. It removes an eighth of them at once, so that
// it does not scan all jobs on every event.
func (l *Ledger) bound() {
	if l.count[Done]+l.count[Elsewhere] > MaxDone {
		l.ForgetEnded(MaxDone - MaxDone/8)
	}
}

// ForgetEnded removes the oldest ended jobs until no more than left ended jobs remain.
func (l *Ledger) ForgetEnded(left int) {
	type ended struct {
		id   int64
		news uint32
	}
	var all []ended
	for id, j := range l.jobs {
		if !j.state.live() {
			all = append(all, ended{id, j.news})
		}
	}
	slices.SortFunc(all, func(a, b ended) int { return cmp.Or(cmp.Compare(a.news, b.news), cmp.Compare(a.id, b.id)) })
	for _, e := range all[:max(0, len(all)-left)] {
		l.Drop(e.id)
	}
}

// Truth contains the unfinished jobs of a repository according to a list from GitHub.
type Truth struct {
	// Repository as OWNER/NAME.
	Repository string
	// Began is when the listing began.
	Began time.Time
	// Jobs of the pool; jobs of other pools may be omitted.
	Jobs []Event
	// Partial is true if the list is incomplete: a missing job may still be active.
	Partial bool
}

// Reconcile updates the jobs of a repository from GitHub's list, and reports whether anything changed. It moves a
// Queued job that is listed as waiting back to Waiting and, unless the list is partial, removes unlisted jobs. It
// leaves jobs with a recent event (see Settle) as they are. Lists can be wrong, so a removed job is not remembered as
// ended: an event or a list can add it again.
func (l *Ledger) Reconcile(t Truth, now time.Time) bool {
	l.advance(now)
	changed := false
	listed := make(map[int64]bool, len(t.Jobs))
	for _, e := range t.Jobs {
		listed[e.ID] = true
		e.Repository = t.Repository
		if l.Record(e, now) {
			changed = true
		} else if j, ok := l.jobs[e.ID]; ok {
			if e.State == Waiting && j.state == Queued && j.taken <= l.mark(t.Began.Add(-Settle)) {
				j.state, changed = Waiting, true // an event reported it too early
			}
			j.news, j.taken = l.seconds(), l.mark(now) // the list confirms that the job is still active
			l.put(e.ID, j)
		}
	}
	if !t.Partial && l.dropUnlisted(t, listed) {
		changed = true
	}
	l.bound()
	return changed
}

func (l *Ledger) dropUnlisted(t Truth, listed map[int64]bool) bool {
	changed := false
	repo, settled := l.repos.find(t.Repository), l.mark(t.Began.Add(-Settle))
	for id, j := range l.jobs {
		if repo == 0 || j.repo != repo || !j.state.live() || listed[id] || j.taken > settled {
			continue
		}
		l.Drop(id)
		changed = true
	}
	return changed
}

// Silent returns the repositories, sorted, of jobs that no event or list has mentioned since the given time: waiting
// for Queued and Waiting jobs, running for Running jobs. If their number exceeds most, it returns those that have been
// silent longest.
func (l *Ledger) Silent(waiting, running time.Time, most int) []string {
	oldest := map[uint16]int64{}
	for _, j := range l.jobs {
		since := waiting
		if j.state == Running {
			since = running
		}
		if j.state.live() && j.repo != 0 && j.taken < l.mark(since) {
			if t, ok := oldest[j.repo]; !ok || j.taken < t {
				oldest[j.repo] = j.taken
			}
		}
	}
	list := slices.SortedFunc(maps.Keys(oldest), func(a, b uint16) int { return cmp.Or(cmp.Compare(oldest[a], oldest[b]), cmp.Compare(a, b)) })
	names := make([]string, 0, min(len(list), most))
	for _, r := range list[:min(len(list), most)] {
		names = append(names, l.repos.list[r])
	}
	slices.Sort(names)
	return names
}

// All calls f with each job, in any order, until f returns false.
func (l *Ledger) All(f func(id int64, s State) bool) {
	for id, j := range l.jobs {
		if !f(id, j.state) {
			return
		}
	}
}

// Merge adds the jobs of another ledger of the same pool, which another process has stored. The jobs keep the time for
// which they have waited.
func (l *Ledger) Merge(before *Ledger) {
	if shift := before.elapsed - l.elapsed; shift > 0 {
		l.elapsed += shift
		for id, j := range l.jobs {
			j.news += uint32(shift / time.Second) //nolint:gosec // it is bounded
			l.jobs[id] = j
		}
	}
	for id, j := range before.jobs {
		if mine, ok := l.jobs[id]; ok && mine.state >= j.state || !ok && j.state.live() && l.live() >= MaxJobs {
			continue
		}
		age := before.seconds() - min(j.news, before.seconds())
		j.news = l.seconds() - min(age, l.seconds())
		j.repo, j.taken = l.repos.index(before.repos.list[j.repo]), l.mark(l.at)
		l.put(id, j)
	}
	l.bound()
}
