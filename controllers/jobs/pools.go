// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/demand"
	"github.com/corral-dev/corral/internal/jobmatch"
	"github.com/corral-dev/corral/internal/reservation"
)

// pool is what a Desk knows of a RunnerPool.
type pool struct {
	key      types.NamespacedName
	owner    metav1.OwnerReference
	conn     types.NamespacedName
	observes bool
	jobs     bool // it has spec.demand.webhook
	rest     bool
	hold     time.Duration
	triggers []v1alpha1.SlackTrigger
	// match is for jobs; any is the same without the webhook's repositories, for slack. They are of no use until placed.
	match, any jobmatch.Pool
	placed     bool // its connection is known

	ledger *reservation.Ledger
	slack  *reservation.Slack

	// What is written down.
	loaded  bool
	busy    bool      // somebody reads or writes
	seq     uint64    // of the last change
	dirty   uint64    // of the first change that isn't being written; 0 if there is none
	flying  uint64    // of the first change that is being written; 0 if none is
	next    time.Time // when it may be written again
	failed  int       // how often that failed in a row
	trouble string    // told last
	version string    // resourceVersion of the ConfigMap; "" if it isn't known or there is none

	swept   time.Time
	woken   time.Time
	wakeDue bool
}

// wanted says whether events may concern the pool at all.
func (p *pool) wanted() bool { return p.jobs || len(p.triggers) > 0 }

func (p *pool) hasTrigger(name string) bool {
	return slices.ContainsFunc(p.triggers, func(t v1alpha1.SlackTrigger) bool { return t.Name == name })
}

// serves says whether the pool's runners may have jobs of a repository.
func (p *pool) serves(job jobmatch.Job) bool { return p.placed && p.any.Covers(job) }

// signals is what events tell.
func (p *pool) signals(now time.Time) []demand.Signal {
	var all []demand.Signal
	if p.jobs {
		c := p.ledger.Counts()
		reason := fmt.Sprintf("%d waiting, %d running", c.Queued, c.Running)
		if c.Dropped > 0 {
			reason += fmt.Sprintf(", and no room for %d more", c.Dropped)
		}
		all = append(all, demand.Signal{Name: v1alpha1.DemandWebhook, Jobs: new(int32(c.Jobs())), Reason: reason, At: now}) //nolint:gosec // it is bounded
	}
	for i := range p.triggers {
		t := &p.triggers[i]
		n, _ := p.slack.Count(t.Name, now)
		all = append(all, demand.Signal{
			Name: t.Name, Idle: new(int32(n) * t.GetAmount()), At: now, //nolint:gosec // it is bounded
			Reason: fmt.Sprintf("%s events in %s: %d", t.Event, t.GetDuration(), n),
		})
	}
	return all
}

// meet makes a pool known, or what changed of it. One that can't be read stays as it was known.
func (k *Desk) meet(obj *v1alpha1.RunnerPool) {
	if obj.Unreadable() != nil {
		return
	}
	key := types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name}
	now := k.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.pools[key]
	if p != nil && p.owner.UID != obj.UID {
		k.forgetLocked(p)
		p = nil
	}
	if p == nil {
		p = &pool{key: key, ledger: reservation.New(now), slack: reservation.NewSlack()}
		k.pools[key] = p
	}
	observes, host := p.observes, p.match.Scope.Host
	was := p.space()
	p.learn(obj)
	k.place(p)
	s := k.spaceOf(p)
	s.order(k.pools)
	if was != s.spaceKey && was != (spaceKey{}) {
		k.leave(was, p)
	}
	if observes != p.observes || host != p.match.Scope.Host || was != s.spaceKey {
		s.delist(p)
		k.enlist(p) // under other keys
	}
	k.claimAll(s, now)
	k.wake(p, now)
	k.poke()
}

// learn takes over what the object says.
func (p *pool) learn(obj *v1alpha1.RunnerPool) {
	p.owner = *metav1.NewControllerRef(obj, v1alpha1.GroupVersion.WithKind("RunnerPool"))
	p.conn = obj.Spec.ConnectionRef.From(obj.Namespace)
	p.observes = obj.Spec.GetMode() == v1alpha1.Observe
	p.rest = obj.Spec.GetRegistration() == v1alpha1.RegisterREST
	p.triggers = obj.Spec.Demand.Slack
	p.jobs, p.hold = obj.Spec.Demand.Webhook != nil, v1alpha1.DefaultHoldFor
	if w := obj.Spec.Demand.Webhook; w != nil {
		p.hold = w.GetHoldFor()
	}
	p.match = jobmatch.Of(obj, jobmatch.Scope{})
	p.any = p.match
	p.any.Repositories = nil
}

// place says where on GitHub a pool is, by its connection. It is nowhere while it may not use that.
func (k *Desk) place(p *pool) {
	c := k.conns[p.conn]
	p.placed = c != nil && c.placed && (p.conn.Namespace == p.key.Namespace || mayUse(context.Background(), k.Access, p.conn, p.key.Namespace) == nil)
	if p.placed {
		p.match.Scope, p.any.Scope = c.scope, c.scope
	}
}

// mayUse returns why pools of a namespace may not use a connection.
func mayUse(ctx context.Context, a Access, conn types.NamespacedName, namespace string) error {
	if a == nil && conn.Namespace != namespace {
		return &demand.NoSignal{Reason: "connections of other namespaces are not allowed"}
	}
	if a == nil {
		return nil
	}
	return a.Check(ctx, conn, namespace)
}

// forget drops a pool that is gone. What was written down goes with it. The jobs that it had may be for others, who are told
// by a look at GitHub.
func (k *Desk) forget(key types.NamespacedName) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.pools[key]; p != nil {
		k.forgetLocked(p)
	}
}

func (k *Desk) forgetLocked(p *pool) {
	k.suspectAll(p)
	delete(k.pools, p.key)
	unmeasure(p.key)
	k.leave(p.space(), p)
}

// leave has a pool leave a space.
func (k *Desk) leave(from spaceKey, p *pool) {
	if s := k.spaces[from]; s != nil {
		s.order(k.pools)
		s.delist(p)
		k.desert(s)
	}
}

// spaceKey names a space: the pools of a namespace whose connections are of a namespace, mostly the same. So what one namespace's pools
// are told, and which of them has a job, doesn't depend on what those of others ask for.
type spaceKey struct{ pools, connections string }

// own says whether the pools and their connections are in one namespace.
func (s spaceKey) own() bool { return s.pools == s.connections }

func (p *pool) space() spaceKey { return spaceKey{p.key.Namespace, p.conn.Namespace} }

func (k *Desk) spaceOf(p *pool) *space { return k.space(p.space()) }

func (k *Desk) space(key spaceKey) *space {
	s := k.spaces[key]
	if s == nil {
		s = &space{spaceKey: key, held: map[jobKey]*pool{}, tidyAt: 10_000, unclaimed: map[jobKey]unclaimed{}}
		k.spaces[key] = s
	}
	return s
}

// spacesOf returns the spaces that the events of a namespace's connections are for, its own first.
func (k *Desk) spacesOf(connections string) []*space {
	all := []*space{k.space(spaceKey{connections, connections})}
	for key, s := range k.spaces {
		if key.connections == connections && !key.own() {
			all = append(all, s)
		}
	}
	return all
}

// desert drops a space of pools on connections of another namespace when it has none any more.
func (k *Desk) desert(s *space) {
	if !s.own() && len(s.members) == 0 {
		delete(k.spaces, s.spaceKey)
	}
}

// jobKey names a job in a space. Pools that observe have jobs of their own, for they act on none.
type jobKey struct {
	host     string
	id       int64
	observes bool
}

// space is what pools share of which one has a job.
type space struct {
	spaceKey
	// members are the pools that events may concern; active and observing those that take jobs.
	members           []*pool
	active, observing class
	held              map[jobKey]*pool // may hold more than there is: ask the ledger

	tidyAt    int // as many are looked at
	unclaimed map[jobKey]unclaimed

	// marked is when and at which change a mark was made; the changes up to it are durable when durable says so.
	marked  uint64
	markAt  time.Time
	durable time.Time
}

// class is pools that jobs are matched against.
type class struct {
	pools   []*pool
	matches []jobmatch.Pool
}

func (s *space) class(observes bool) *class {
	if observes {
		return &s.observing
	}
	return &s.active
}

// order lists the pools of the space. Of those on connections of other namespaces, only such as may use them.
func (s *space) order(pools map[types.NamespacedName]*pool) {
	s.members, s.active, s.observing = nil, class{}, class{}
	for _, p := range pools {
		if p.space() != s.spaceKey || !p.wanted() || !p.placed && !s.own() {
			continue
		}
		s.members = append(s.members, p)
		if !p.jobs || !p.placed {
			continue
		}
		c := s.class(p.observes)
		c.pools, c.matches = append(c.pools, p), append(c.matches, p.match)
	}
}

func (s *space) keyOf(p *pool, id int64) jobKey {
	return jobKey{host: p.match.Scope.Host, id: id, observes: p.observes}
}

// enlist says which jobs a pool has. Of two pools that have a job, one keeps it: the one that knows more.
func (k *Desk) enlist(p *pool) {
	s, now := k.spaceOf(p), k.Now()
	p.ledger.All(func(id int64, state reservation.State) bool {
		key, loser := s.keyOf(p, id), (*pool)(nil)
		switch other := s.holder(key); {
		case other == nil || other == p:
		case other.ledger.Has(id) >= state:
			loser = p
		default:
			loser = other
		}
		if loser != p {
			s.held[key] = p
		}
		if loser != nil {
			loser.ledger.Drop(id)
			k.changed(loser, now)
			k.wake(loser, now)
		}
		return true
	})
}

func (s *space) delist(p *pool) {
	for key, holder := range s.held {
		if holder == p {
			delete(s.held, key)
		}
	}
}

// holder returns the pool that has a job, nil if none has.
func (s *space) holder(key jobKey) *pool {
	p := s.held[key]
	if p != nil && p.ledger.Has(key.id) == 0 {
		delete(s.held, key)
		return nil
	}
	return p
}

// tidy drops what ledgers have forgotten, when it may be more than what they know.
func (s *space) tidy() {
	if len(s.held) < s.tidyAt {
		return
	}
	for key := range s.held {
		s.holder(key)
	}
	s.tidyAt = 2*len(s.held) + 10_000
}

// manyFailures to write down a pool's jobs are that pool's matter: a namespace in which nothing can be written must not have the owner
// of a connection that it uses look back for ever.
const manyFailures = 3

// settle moves the mark on: what was taken in before it is durable when no pool has an older change to be written.
func (s *space) settle(now time.Time, seq uint64) {
	for _, p := range s.members {
		if p.unwritten(s.marked) && (s.own() || p.failed < manyFailures) {
			return
		}
	}
	s.durable = s.markAt
	s.marked, s.markAt = seq, now
}

// unwritten says whether the pool has a change up to a mark that isn't written.
func (p *pool) unwritten(mark uint64) bool {
	return !p.loaded || (p.dirty != 0 && p.dirty <= mark) || (p.flying != 0 && p.flying <= mark)
}
