// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/demand"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/reservation"
)

// account knows which pool has which job. It does no I/O, reads no clock and holds no lock: its methods take an event or an object
// and return the changes that follow from it. All of it is lost with the process, except what changes.write had written down.
type account struct {
	pools  map[types.NamespacedName]*pool
	spaces map[spaceKey]*space
	conns  map[types.NamespacedName]*connection
	// mayUse reports whether pools of a namespace may use a connection.
	mayUse func(connection types.NamespacedName, namespace string) bool
	meter  *JobMeter

	pending changes // of the call that is under way
}

// changes are what a caller has to do after a call of the account. Names may repeat.
type changes struct {
	wake   []*pool                // pools whose demand is another
	write  []*pool                // pools whose jobs are to be written down
	ask    []types.NamespacedName // connections that are new, or changed
	lookUp []types.NamespacedName // connections with runner groups to look up
	record []recordedJob          // jobs of runners without a scale set
}

// recordedJob is an event of a job that a pool's runner has.
type recordedJob struct {
	pool   types.NamespacedName
	runner string
	event  scaleset.JobEvent
}

func newAccount(meter *JobMeter, mayUse func(connection types.NamespacedName, namespace string) bool) *account {
	return &account{
		pools: map[types.NamespacedName]*pool{}, spaces: map[spaceKey]*space{}, conns: map[types.NamespacedName]*connection{}, mayUse: mayUse, meter: meter,
	}
}

// flush returns the changes since the last call.
func (a *account) flush() changes {
	all := a.pending
	a.pending = changes{}
	return all
}

func (a *account) wake(p *pool) { a.pending.wake = append(a.pending.wake, p) }

// changed notes that a pool's jobs have to be written down.
func (a *account) changed(p *pool, now time.Time) {
	if p.saved.unwritten.IsZero() {
		p.saved.unwritten = now
		a.pending.write = append(a.pending.write, p)
	}
}

// setPool adds a pool, or takes over what changed of it. One that can't be read stays as it was.
func (a *account) setPool(obj *v1alpha1.RunnerPool, now time.Time) changes {
	if obj.Unreadable() != nil {
		return changes{}
	}
	key := types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name}
	p := a.pools[key]
	if p != nil && p.owner.UID != obj.UID {
		a.drop(p, now)
		p = nil
	}
	if p == nil {
		p = &pool{key: key, ledger: reservation.New(now), slack: reservation.NewSlack()}
		a.pools[key] = p
	}
	observes, host, was := p.observes, p.match.Scope.Host, p.space()
	p.learn(obj)
	a.place(p)
	s := a.space(p.space())
	s.order(a.pools)
	if was != s.spaceKey && was != (spaceKey{}) {
		a.leave(was, p)
	}
	if observes != p.observes || host != p.match.Scope.Host || was != s.spaceKey {
		s.release(p)
		a.claim(p, now) // under other keys
	}
	a.placeUnmatched(s, now)
	a.wake(p)
	a.pending.write = append(a.pending.write, p) // it may not be read yet
	return a.flush()
}

// removePool drops a pool that is gone. What was written down goes with it. The jobs that it had may be for others: a comparison with
// GitHub finds them.
func (a *account) removePool(key types.NamespacedName, now time.Time) changes {
	if p := a.pools[key]; p != nil {
		a.drop(p, now)
	}
	return a.flush()
}

func (a *account) drop(p *pool, now time.Time) {
	for _, repository := range p.ledger.Silent(now.Add(time.Minute), time.Time{}, maxSuspects) {
		a.suspect(p, repository, now)
	}
	delete(a.pools, p.key)
	unmeasure(p.key)
	a.meter.Forget(p.key)
	a.leave(p.space(), p)
}

// leave has a pool leave a space.
func (a *account) leave(from spaceKey, p *pool) {
	if s := a.spaces[from]; s != nil {
		s.order(a.pools)
		s.release(p)
		a.dropEmpty(s)
	}
}

// setConnection adds a connection, or takes over what changed of it.
func (a *account) setConnection(obj *v1alpha1.GitHubConnection, now time.Time) changes {
	key := types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name}
	c := a.conns[key]
	if c == nil || c.owner.UID != obj.UID {
		c = newConnection(key, now)
		a.conns[key] = c
	}
	c.learn(obj)
	a.pending.ask = append(a.pending.ask, key)
	a.placeAll(key, now)
	return a.flush()
}

// removeConnection drops a connection that is gone.
func (a *account) removeConnection(key types.NamespacedName, now time.Time) changes {
	delete(a.conns, key)
	a.placeAll(key, now)
	return a.flush()
}

// placeAll places the pools of a connection anew.
func (a *account) placeAll(conn types.NamespacedName, now time.Time) {
	for _, p := range a.pools {
		if p.conn != conn {
			continue
		}
		was := p.placed
		if a.place(p); p.placed && !was {
			a.claim(p, now)
		}
	}
	for _, s := range a.spacesOf(conn.Namespace) {
		s.order(a.pools)
		a.placeUnmatched(s, now)
		a.dropEmpty(s)
	}
}

// place sets where on GitHub a pool is, by its connection. It is nowhere while it may not use that.
func (a *account) place(p *pool) {
	c := a.conns[p.conn]
	p.placed = c != nil && c.placed && (p.conn.Namespace == p.key.Namespace || a.mayUse(p.conn, p.key.Namespace))
	if p.placed {
		p.match.Scope, p.any.Scope = c.scope, c.scope
	}
}

// restore adds what was written down of a pool: its jobs and its slack, each nil for none.
func (a *account) restore(p *pool, jobs *reservation.Ledger, slack *reservation.Slack, now time.Time) changes {
	if jobs != nil {
		p.ledger.Merge(jobs)
		a.claim(p, now)
	}
	if slack != nil {
		p.slack.Merge(slack)
	}
	if !p.saved.loaded {
		p.saved.loaded = true
		a.wake(p)
	}
	return a.flush()
}

// expire forgets a pool's events and jobs that count no more. It returns how long it is until there may be more of them, at most
// sweepInterval. A look at the jobs takes a millisecond for each ten thousand.
func (a *account) expire(p *pool, now time.Time) (time.Duration, changes) {
	if p.slack.Expire(p.hasTrigger, now) {
		a.changed(p, now)
		a.wake(p)
	}
	if now.Sub(p.saved.swept) >= sweepInterval {
		p.saved.swept = now
		before := p.ledger.Counts()
		if n := p.ledger.Expire(p.hold, now); n > 0 {
			expired.WithLabelValues(p.key.Namespace, p.key.Name).Add(float64(n))
		}
		if p.ledger.Counts() != before {
			a.changed(p, now)
			a.wake(p)
		}
	}
	next := p.saved.swept.Add(sweepInterval)
	for i := range p.triggers {
		if _, end := p.slack.Count(p.triggers[i].Name, now); !end.IsZero() && end.Before(next) {
			next = end
		}
	}
	return max(next.Sub(now), time.Millisecond), a.flush()
}

// retain frees the places of jobs whose runners keep says are gone. A pool that only observes has no runners of its own.
func (a *account) retain(key types.NamespacedName, keep func(runner string) bool, now time.Time) changes {
	if p := a.pools[key]; p != nil && !p.observes && p.ledger.Retain(keep, now) {
		a.changed(p, now)
	}
	return a.flush()
}

// reading is the demand of a pool that events tell of. It isn't known until what was written down before is read.
func (a *account) reading(key types.NamespacedName, now time.Time) demand.Reading {
	p := a.pools[key]
	switch {
	case p == nil:
		return demand.Reading{}
	case !p.wanted():
		return demand.Reading{Known: true}
	case !p.saved.loaded:
		return demand.Reading{}
	}
	return demand.Reading{Known: true, Signals: p.signals(now)}
}

// durable returns up to when all that was taken in for connections of a namespace is written down; the zero time if something wasn't read
// yet. A namespace in which nothing can be written must not have the owner of a connection that it uses look back for ever.
func (a *account) durable(namespace string, now time.Time) time.Time {
	first := now
	for _, s := range a.spacesOf(namespace) {
		for _, p := range s.members {
			if at := p.saved.durable(now); at.Before(first) && (s.own() || p.saved.failed < manyFailures) {
				first = at
			}
		}
	}
	return first
}
