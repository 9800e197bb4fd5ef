// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package reservation keeps account of the jobs that GitHub's events tell a pool of. Each job is known by its id and only ever goes
// forward, so events may come in any order and as often as they like. All of it works on values; what is kept is
// bounded, and is written down in a few bytes a job.
package reservation

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// State of a job. A job never goes back to a smaller one.
type State uint8

// States.
const (
	// Waiting for an approval or another rule of its environment: it asks for no runner yet.
	Waiting State = iota + 1
	// Queued jobs ask for a runner.
	Queued
	// Elsewhere is where a job runs that no runner of the pool has.
	Elsewhere
	// Running on a runner of the pool.
	Running
	// Done jobs have ended.
	Done
)

// Bounds.
const (
	// MaxJobs is how many jobs of a pool are kept that haven't ended. GitHub is asked for those beyond when others are gone.
	MaxJobs = 20_000
	// MaxDone is how many jobs are remembered that need nothing any more, the latest first, so that a late event doesn't count them again.
	MaxDone = 8_192
	// DoneFor is how long those are remembered at most.
	DoneFor = 2 * time.Hour
	// Settle is how new an event must be to be believed against a list of jobs: GitHub's lists lag behind.
	Settle = 30 * time.Second
	// maxRepositories is of how many repositories the names are kept.
	maxRepositories = 2_000
	// maxName bounds the names that are kept, in bytes.
	maxName = 200
)

// Event is news of a job.
type Event struct {
	// ID of the job: workflow_job.id.
	ID int64
	// State that it has reached.
	State State
	// Repository as OWNER/NAME.
	Repository string
	// Runner that has the job, of a Running one.
	Runner string
}

// Ledger holds a pool's jobs. It is not safe for concurrent use.
type Ledger struct {
	jobs  map[int64]job
	on    map[string]int64 // the job that a runner has
	count [Done + 1]int
	repos names

	// elapsed is the time that ran down for waiting jobs until at; it stands still while the ledger is paused.
	elapsed time.Duration
	at      time.Time
	begun   time.Time
	paused  bool
	dropped int // jobs that there was no room for, since there was
}

// job takes 40 bytes, so that ten thousand of them are nothing to speak of.
type job struct {
	state  State
	news   uint32 // seconds of Ledger.elapsed when it was last heard of
	repo   uint16 // index in Ledger.repos
	taken  int64  // seconds since Ledger.begun when it was last heard of, or read
	runner string
}

// live reports whether a job hasn't ended, as far as the pool is concerned.
func (s State) live() bool { return s == Waiting || s == Queued || s == Running }

// New returns an empty ledger. Its clock stands still until it is told that the pool has room.
func New(now time.Time) *Ledger {
	return &Ledger{jobs: map[int64]job{}, on: map[string]int64{}, repos: newNames(), at: now, begun: now, paused: true}
}

// Counts are what a ledger amounts to.
type Counts struct {
	// Queued jobs wait for a runner, Running ones have one of the pool.
	Queued, Running int
	// Waiting jobs wait for something else.
	Waiting int
	// Ended jobs are remembered that need no runner of the pool any more.
	Ended int
	// Dropped is how many news of jobs there was no room for, since there was.
	Dropped int
}

// Jobs is how many runners the jobs ask for.
func (c Counts) Jobs() int { return c.Queued + c.Running }

// Counts returns what the ledger amounts to.
func (l *Ledger) Counts() Counts {
	return Counts{Queued: l.count[Queued], Running: l.count[Running], Waiting: l.count[Waiting], Ended: l.count[Elsewhere] + l.count[Done], Dropped: l.dropped}
}

// Pause stops the clock by which waiting jobs expire, or lets it go on: it is to stand still while the pool
// has as many runners as it may, for no job could have got one.
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

// Has returns the state of a job, 0 if it isn't known.
func (l *Ledger) Has(id int64) State { return l.jobs[id].state }

// Record enters news of a job, and returns whether there was any: what was known, or is older than what was known, is none.
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

// Refuse counts a job that there was no room for elsewhere.
func (l *Ledger) Refuse() { l.dropped++ }

// Len returns how many jobs are known, those that ended included.
func (l *Ledger) Len() int { return len(l.jobs) }

// put enters a job. A runner has one job at a time: of two that are told to run on it, the older, by its id, is taken for over.
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

// mark is a time in seconds since the ledger began. Differences of times within a process don't change with the clock on the wall.
func (l *Ledger) mark(t time.Time) int64 { return int64(t.Sub(l.begun) / time.Second) }

func short(name string) string { return name[:min(len(name), maxName)] }

// Drop forgets a job: another pool has it.
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

// Retain takes the jobs of runners that keep doesn't want for run elsewhere, and returns whether there was one: whoever lost
// its runner doesn't need the place any more. It costs nothing while no job runs.
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

// Expire forgets jobs that wait and weren't heard of for hold while the clock went, and those that ended long ago. It returns
// how many of the former there were.
func (l *Ledger) Expire(hold time.Duration, now time.Time) int {
	l.advance(now)
	expired, seconds := 0, l.seconds()
	if l.live() < MaxJobs {
		l.dropped = 0
	}
	for id, j := range l.jobs {
		age := time.Duration(seconds-min(j.news, seconds)) * time.Second
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

// bound forgets the jobs that ended first when there are too many. It does so in steps, so that not each event costs a look at all.
func (l *Ledger) bound() {
	if l.count[Done]+l.count[Elsewhere] > MaxDone {
		l.ForgetEnded(MaxDone - MaxDone/8)
	}
}

// ForgetEnded forgets the jobs that ended first, so that some are left.
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

// Truth is which jobs of a repository haven't ended, as a list of GitHub's tells.
type Truth struct {
	// Repository as OWNER/NAME.
	Repository string
	// Began is when the list was begun.
	Began time.Time
	// Jobs of the pool; of other pools' there is no need to tell.
	Jobs []Event
	// Partial is true if the list isn't complete: what isn't in it may go on.
	Partial bool
}

// Reconcile makes the repository's jobs those that GitHub lists: what isn't listed is forgotten, and what waits for an approval is queued no more,
// unless it was heard of just before. That is not as final as a word of its end, for lists can be wrong. It returns whether anything changed.
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
				j.state, changed = Waiting, true // an event told of it too early
			}
			j.news, j.taken = l.seconds(), l.mark(now) // it still is what it was
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

// Silent returns the repositories, sorted, of jobs that wait or run and weren't heard of since a time, which is another for the two; those
// of which nothing was heard for the longest, if there are more than most.
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

// All calls f with each job, in no order, until f returns false.
func (l *Ledger) All(f func(id int64, s State) bool) {
	for id, j := range l.jobs {
		if !f(id, j.state) {
			return
		}
	}
}

// Merge adds what another ledger of the same pool knows, which somebody else has written down. Jobs keep how long they have waited.
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
