// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package reservation tracks the jobs for a pool that GitHub's events report. Each job is identified by its id and only
// moves forward, so events may arrive in any order and any number of times. The package is pure. Its data is limited,
// and is encoded in a few bytes per job.
package reservation

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// State of a job. A job never returns to a smaller one.
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
	// MaxJobs is how many unfinished jobs of a pool are kept. When there is room again, GitHub is asked for the others.
	MaxJobs = 20_000
	// MaxDone is how many jobs that need no more runners are remembered, the latest first, so that a late event does
	// not count them again.
	MaxDone = 8_192
	// DoneFor is the maximum time for which those are remembered.
	DoneFor = 2 * time.Hour
	// Settle is how recent an event must be to take precedence over a list of jobs, because GitHub's lists lag behind.
	Settle = 30 * time.Second
	// maxRepositories is the number of repositories whose names are kept.
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

	// elapsed is the waiting time that has counted up to the time at; it does not grow while the ledger is paused.
	elapsed time.Duration
	at      time.Time
	begun   time.Time
	paused  bool
	dropped int // events without room since there was last room
}

// job takes 40 bytes, so that ten thousand of them are negligible.
type job struct {
	state  State
	news   uint32 // Ledger.elapsed in seconds at the last event
	repo   uint16 // index in Ledger.repos
	taken  int64  // seconds since Ledger.begun at the last event or list
	runner string
}

// live reports whether a job is unfinished from the pool's point of view.
func (s State) live() bool { return s == Waiting || s == Queued || s == Running }

// New returns an empty ledger. Its clock stands still until Pause(false) is called.
func New(now time.Time) *Ledger {
	return &Ledger{jobs: map[int64]job{}, on: map[string]int64{}, repos: newNames(), at: now, begun: now, paused: true}
}

// Counts summarizes a ledger.
type Counts struct {
	// Queued is the number of jobs that wait for a runner, Running the number of jobs on runners of the pool.
	Queued, Running int
	// Waiting is the number of jobs that wait for something else.
	Waiting int
	// Ended is the number of remembered jobs that need no more runners of the pool.
	Ended int
	// Dropped is the number of events without room, since there was last room.
	Dropped int
}

// Jobs returns how many runners the jobs need.
func (c Counts) Jobs() int { return c.Queued + c.Running }

// Counts returns a summary of the ledger.
func (l *Ledger) Counts() Counts {
	return Counts{Queued: l.count[Queued], Running: l.count[Running], Waiting: l.count[Waiting], Ended: l.count[Elsewhere] + l.count[Done], Dropped: l.dropped}
}

// Pause stops or resumes the expiry clock of waiting jobs. The clock must be stopped while the pool has its
// maximum number of runners, because no job could have got one.
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

// Has returns the state of a job, 0 if it is unknown.
func (l *Ledger) Has(id int64) State { return l.jobs[id].state }

// Record adds an event about a job, and reports whether it changed anything. An event that is older than the known
// state does not.
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

// Refuse counts an event for which there was no room elsewhere.
func (l *Ledger) Refuse() { l.dropped++ }

// Len returns the number of known jobs, including ended ones.
func (l *Ledger) Len() int { return len(l.jobs) }

// put adds a job. A runner has one job at a time: if events report two, the one with the smaller id counts as over.
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

// Drop removes a job that belongs to another pool.
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

// Retain marks the jobs of runners for which keep returns false as running elsewhere, and reports whether there were
// any: a job whose runner is gone no longer needs a place. It costs nothing while no job runs.
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

// Expire removes waiting jobs without an event for the time hold on the ledger's clock, and jobs that ended long ago.
// It returns the number of removed waiting jobs.
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

// Quiet returns for how long nothing was heard of a job while the clock went.
func (l *Ledger) Quiet(id int64) time.Duration {
	seconds := l.seconds()
	return time.Duration(seconds-min(l.jobs[id].news, seconds)) * time.Second
}

// bound forgets the jobs that ended first when there are too many. It does so in steps, so that not each event costs a look at all.
func (l *Ledger) bound() {
	if l.count[Done]+l.count[Elsewhere] > MaxDone {
		l.ForgetEnded(MaxDone - MaxDone/8)
	}
}

// ForgetEnded removes the jobs that ended first until at most left ended jobs remain.
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

// Reconcile aligns the repository's jobs with GitHub's list. It removes unlisted jobs, and a queued job that is listed
// as waiting for an approval becomes Waiting, unless there was a recent event. A removed job can return, unlike an
// ended one, because lists can be wrong. It reports whether anything changed.
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
			j.news, j.taken = l.seconds(), l.mark(now) // it is unchanged
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

// Silent returns the repositories, sorted, of waiting or running jobs without an event since a time, which differs
// between the two. If there are more than most, it returns those without an event for the longest time.
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

// Merge adds the jobs of another ledger of the same pool that another process has stored. Jobs keep the time for which
// they have waited.
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
