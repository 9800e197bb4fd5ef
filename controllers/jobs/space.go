// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/internal/demand"
	"github.com/corral-dev/corral/internal/reservation"
	"github.com/corral-dev/corral/internal/share"
)

// spaceKey names a space: the pools of a namespace whose connections are of a namespace, mostly the same. So what one namespace's pools
// are told, and which of them has a job, doesn't depend on what those of others ask for.
type spaceKey struct{ pools, connections string }

// own reports whether the pools and their connections are in one namespace.
func (s spaceKey) own() bool { return s.pools == s.connections }

// space knows which of its pools has which job. Its methods do no I/O, read no clock and compare nothing with patterns. They are called with its
// lock, which no other namespace's pools need. All of it is lost with the process, except what was written down.
type space struct {
	spaceKey
	tracker *JobTracker

	weight  atomic.Int64 // the work of a comparison with all pools, 0 if events concern none of them
	turn    sync.Mutex   // for a large comparison
	waiting atomic.Int32 // for the turn

	mu        sync.Mutex
	members   map[string]*pool     // by name
	index     map[asked]candidates // of the members
	held      map[jobKey]*pool     // may hold more than there is: ask the ledger
	tidyAt    int                  // size of held at which those that ledgers have forgotten are dropped
	entries   entries
	unmatched map[jobKey]unmatchedJob
	// remembered is how many bytes those take, which memory counts.
	remembered int64
	memory     *share.Hold
	changed    map[*pool]bool // pools that weren't compared with the unmatched jobs yet
	views      map[uint64]view
	lookups    []lookup              // to come
	suspects   map[suspect]time.Time // repositories to compare with GitHub, and when
}

func newSpace(key spaceKey, k *JobTracker) *space {
	s := &space{
		spaceKey: key, tracker: k, members: map[string]*pool{}, index: map[asked]candidates{}, held: map[jobKey]*pool{}, tidyAt: 10_000,
		changed: map[*pool]bool{}, views: map[uint64]view{}, suspects: map[suspect]time.Time{},
	}
	s.beginUnmatched()
	return s
}

// isOver reports whether the last pool has left the space, which is then dropped. A namespace's own space stays: it has jobs that wait for pools.
func (s *space) isOver() bool { return len(s.members) == 0 && !s.own() }

// key names the space at workers.
func (s *space) key() types.NamespacedName {
	return types.NamespacedName{Namespace: s.pools, Name: s.connections}
}

// wake has a pool reconciled: at once, but not oftener than each wakeInterval.
func (s *space) wake(p *pool, now time.Time) {
	if now.Before(p.woken) {
		return // it is about to be
	}
	if p.woken = p.woken.Add(wakeInterval); p.woken.Before(now) {
		p.woken = now
	}
	s.tracker.Events.WakeAfter(p.key, p.woken.Sub(now))
}

// noteChanged notes that a pool's jobs have to be written down.
func (s *space) noteChanged(p *pool, now time.Time) {
	if p.saved.unwritten.IsZero() {
		p.saved.unwritten = now
		s.tracker.workers.jobs.add(p.key)
	}
}

// place has events compared with what a pool asks for, by where its connection is on GitHub. It is nowhere while it may not use that.
func (s *space) place(p *pool, next candidate, now time.Time) {
	s.takeOut(p)
	scope, placed := s.tracker.locate(p.conn, s.pools)
	if placed {
		next.match.Scope = scope
	}
	next.pool, next.placed = p, placed
	p.now = &next
	s.members[p.key.Name] = p
	s.entries.note(p.ledger.Len(), &s.tracker.entries)
	s.list(p.now, true)
	s.claim(p, now)
	if len(s.unmatched) > 0 {
		s.changed[p] = true
		s.tracker.workers.unmatched.add(s.key())
	}
}

// takeOut removes a pool.
func (s *space) takeOut(p *pool) {
	s.list(p.now, false)
	p.ledger.All(func(id int64, _ reservation.State) bool {
		if key := p.jobKey(id); s.held[key] == p {
			delete(s.held, key)
		}
		return true
	})
	if s.members[p.key.Name] == p {
		s.entries.note(-p.ledger.Len(), &s.tracker.entries)
	}
	delete(s.members, p.key.Name)
	delete(s.changed, p)
}

// drop removes a pool that is gone. What was written down goes with it. The jobs that it had may be for others: a comparison with
// GitHub finds them.
func (s *space) drop(p *pool, now time.Time) {
	s.compareAll(p.conn, p.ledger, now)
	s.takeOut(p)
	unmeasure(p.key)
	s.tracker.Meter.Forget(p.key)
}

// compareAll has the repositories of jobs compared with GitHub.
func (s *space) compareAll(conn types.NamespacedName, jobs *reservation.Ledger, now time.Time) {
	for _, repository := range jobs.Silent(now.Add(time.Minute), time.Time{}, maxSuspects) {
		s.suspect(suspect{conn, repository}, now)
	}
}

// restore adds what was written down of a pool: its jobs and its boosts, each nil for none.
func (s *space) restore(p *pool, jobs *reservation.Ledger, boosts *reservation.Boosts, now time.Time) {
	if jobs != nil && s.hasRoomFor(jobs) {
		p.ledger.Merge(jobs)
		s.claim(p, now)
	} else if jobs != nil {
		s.compareAll(p.conn, jobs, now)
	}
	if boosts != nil {
		p.boosts.Merge(boosts)
	}
	if !p.saved.loaded {
		p.saved.loaded = true
		s.wake(p, now)
	}
}

// expire forgets a pool's events and jobs that count no more. It returns how long it is until there may be more of them, at most
// sweepInterval. A look at the jobs takes a millisecond for each ten thousand.
func (s *space) expire(p *pool, now time.Time) time.Duration {
	if p.boosts.Expire(p.hasTrigger, now) {
		s.noteChanged(p, now)
		s.wake(p, now)
	}
	if now.Sub(p.saved.swept) >= sweepInterval {
		p.saved.swept = now
		before := p.ledger.Counts()
		if n := p.ledger.Expire(p.hold, now); n > 0 {
			expired.WithLabelValues(p.key.Namespace, p.key.Name).Add(float64(n))
		}
		if p.ledger.Counts() != before {
			s.noteChanged(p, now)
			s.wake(p, now)
		}
	}
	next := p.saved.swept.Add(sweepInterval)
	for i := range p.now.triggers {
		if _, end := p.boosts.Count(p.now.triggers[i].Name, now); !end.IsZero() && end.Before(next) {
			next = end
		}
	}
	return max(next.Sub(now), time.Millisecond)
}

// reading is the demand of a pool that events tell of. It isn't known until what was written down before is read.
func (p *pool) reading(now time.Time) demand.Reading {
	switch {
	case !p.wanted():
		return demand.Reading{Known: true}
	case !p.saved.loaded:
		return demand.Reading{}
	}
	return demand.Reading{Known: true, Signals: p.signals(now)}
}

// durable returns up to when all that was taken in for connections of a namespace is written down; the zero time if something wasn't read
// yet. A namespace in which nothing can be written must not have the owner of a connection that it uses look back for ever.
func (k *JobTracker) durable(connections string, now time.Time) time.Time {
	first := now
	for _, s := range k.spacesOf(connections) {
		s.mu.Lock()
		for _, p := range s.members {
			if !p.wanted() || !p.now.placed && !s.own() {
				continue
			}
			if at := p.saved.durable(now); at.Before(first) && (s.own() || p.saved.failed < manyFailures) {
				first = at
			}
		}
		s.mu.Unlock()
	}
	return first
}
