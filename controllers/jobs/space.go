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

// spaceKey identifies a space: the pools of one namespace whose connections are all in one namespace, which is usually the
// same. Because of this split, the jobs and the demand of one namespace's pools do not depend on what the pools of other
// namespaces ask for.
type spaceKey struct{ pools, connections string }

// own reports whether the pools and their connections are in one namespace.
func (s spaceKey) own() bool { return s.pools == s.connections }

// space groups the pools that compete for the same jobs, and records which pool has which job. Most of its methods are
// called with its lock held, which no pool of another namespace needs. These methods do no I/O, read no clock and match no
// patterns. After a restart, only the data that was stored in ConfigMaps is left.
type space struct {
	spaceKey
	tracker *JobTracker

	weight  atomic.Int64 // the work of a comparison with all pools; 0 if events concern none of them
	turn    sync.Mutex   // held during a large comparison
	waiting atomic.Int32 // number of comparisons that wait for the turn

	mu        sync.Mutex
	members   map[string]*pool     // by name
	index     map[asked]candidates // of the members
	held      map[jobKey]*pool     // the pool that has each job; may contain jobs that the ledgers have dropped
	tidyAt    int                  // size of held at which jobs that the ledgers have dropped are removed
	entries   entries
	unmatched map[jobKey]unmatchedJob
	// remembered is the size of the unmatched jobs in bytes, which memory counts.
	remembered int64
	memory     *share.Hold
	changed    map[*pool]bool // pools that have not been compared with the unmatched jobs yet
	views      map[uint64]view
	lookups    []lookup              // pending lookups
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

// isOver reports whether the last pool has left the space. The space is then dropped. A namespace's own space stays, because
// it holds jobs that wait for pools.
func (s *space) isOver() bool { return len(s.members) == 0 && !s.own() }

// key returns the key of the space for workers.
func (s *space) key() types.NamespacedName {
	return types.NamespacedName{Namespace: s.pools, Name: s.connections}
}

// wake triggers a reconciliation of a pool, at once but at most once per wakeInterval.
func (s *space) wake(p *pool, now time.Time) {
	if now.Before(p.woken) {
		return // a wake is pending
	}
	if p.woken = p.woken.Add(wakeInterval); p.woken.Before(now) {
		p.woken = now
	}
	s.tracker.Events.WakeAfter(p.key, p.woken.Sub(now))
}

// noteChanged records that a pool has changes that need to be stored.
func (s *space) noteChanged(p *pool, now time.Time) {
	if p.saved.unwritten.IsZero() {
		p.saved.unwritten = now
		s.tracker.workers.jobs.add(p.key)
	}
}

// place adds or updates a pool, and adds it to the index of events, with the scope of its connection. If the scope is
// unknown or the pool may not use the connection, the pool is not placed: it gets no events.
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

// takeOut removes a pool from the space and its index, and its jobs from held.
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

// drop removes a deleted pool and its metrics. Other pools may be able to run its waiting jobs, so drop schedules
// comparisons with GitHub, which assign them.
func (s *space) drop(p *pool, now time.Time) {
	s.compareAll(p.conn, p.ledger, now)
	s.takeOut(p)
	unmeasure(p.key)
	s.tracker.Meter.Forget(p.key)
}

// compareAll schedules comparisons with GitHub for the repositories of the waiting jobs in a ledger.
func (s *space) compareAll(conn types.NamespacedName, jobs *reservation.Ledger, now time.Time) {
	for _, repository := range jobs.Silent(now.Add(time.Minute), time.Time{}, maxSuspects) {
		s.suspect(suspect{conn, repository}, now)
	}
}

// restore adds the stored jobs and boosts of a pool; each may be nil. If there is no room for the jobs, it schedules
// comparisons with GitHub instead.
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

// expire drops a pool's expired events and jobs. It returns the delay until the next check, at most sweepInterval. A check
// takes a millisecond per ten thousand jobs.
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

// reading returns the demand of a pool according to events. It is unknown until the stored state was read.
func (p *pool) reading(now time.Time) demand.Reading {
	switch {
	case !p.wanted():
		return demand.Reading{Known: true}
	case !p.saved.loaded:
		return demand.Reading{}
	}
	return demand.Reading{Known: true, Signals: p.signals(now)}
}

// durable returns the time before which everything received for connections of a namespace is stored; the zero time if the
// stored state of a pool has not been read yet. It ignores pools of other namespaces whose writes keep failing. Otherwise,
// the checks of the connections' deliveries would reach further and further back.
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
