// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/demand"
	"github.com/corral-dev/corral/internal/jobmatch"
	"github.com/corral-dev/corral/internal/reservation"
)

// pool is what the account knows of a RunnerPool.
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

	saved saved
	woken time.Time // when the pool is woken next, or was last
}

// saved is how far a pool's jobs are written down.
type saved struct {
	loaded    bool      // what was written down before is read
	unwritten time.Time // of the first change that isn't being written; zero if there is none
	writing   time.Time // of the first change that is being written; zero if none is
	next      time.Time // when it may be written again
	failed    int       // how often that failed in a row
	version   string    // resourceVersion of the ConfigMap; "" if it isn't known or there is none
	swept     time.Time // when jobs that expired were last looked for
}

// durable returns up to when all changes are written down; the zero time if it isn't known.
func (s *saved) durable(now time.Time) time.Time {
	switch {
	case !s.loaded:
		return time.Time{}
	case !s.writing.IsZero():
		return s.writing
	case !s.unwritten.IsZero():
		return s.unwritten
	}
	return now
}

// wanted reports whether events may concern the pool at all.
func (p *pool) wanted() bool { return p.jobs || len(p.triggers) > 0 }

func (p *pool) hasTrigger(name string) bool {
	return slices.ContainsFunc(p.triggers, func(t v1alpha1.SlackTrigger) bool { return t.Name == name })
}

// serves reports whether the pool's runners may have jobs of a repository.
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

// spaceKey names a space: the pools of a namespace whose connections are of a namespace, mostly the same. So what one namespace's pools
// are told, and which of them has a job, doesn't depend on what those of others ask for.
type spaceKey struct{ pools, connections string }

// own reports whether the pools and their connections are in one namespace.
func (s spaceKey) own() bool { return s.pools == s.connections }

func (p *pool) space() spaceKey { return spaceKey{p.key.Namespace, p.conn.Namespace} }

func (a *account) space(key spaceKey) *space {
	s := a.spaces[key]
	if s == nil {
		s = &space{spaceKey: key, held: map[jobKey]*pool{}, tidyAt: 10_000, unmatched: map[jobKey]unmatchedJob{}}
		a.spaces[key] = s
	}
	return s
}

// spacesOf returns the spaces that the events of a namespace's connections are for, its own first.
func (a *account) spacesOf(connections string) []*space {
	all := []*space{a.space(spaceKey{connections, connections})}
	for key, s := range a.spaces {
		if key.connections == connections && !key.own() {
			all = append(all, s)
		}
	}
	return all
}

// dropEmpty drops a space of pools on connections of another namespace when it has none any more.
func (a *account) dropEmpty(s *space) {
	if !s.own() && len(s.members) == 0 {
		delete(a.spaces, s.spaceKey)
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

	tidyAt    int // size of held at which those that ledgers have forgotten are dropped
	unmatched map[jobKey]unmatchedJob
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

// claim takes the jobs of a pool's ledger for its own. Of two pools that have a job, one keeps it: the one that knows more.
func (a *account) claim(p *pool, now time.Time) {
	s := a.space(p.space())
	p.ledger.All(func(id int64, state reservation.State) bool {
		key := s.keyOf(p, id)
		other := s.holder(key)
		if other != nil && other != p && other.ledger.Has(id) >= state {
			a.dropJob(p, id, now)
			return true
		}
		s.hold(key, p)
		if other != nil && other != p {
			a.dropJob(other, id, now)
		}
		return true
	})
}

// dropJob takes a job from a pool: another one has it.
func (a *account) dropJob(p *pool, id int64, now time.Time) {
	p.ledger.Drop(id)
	a.changed(p, now)
	a.wake(p)
}

// release forgets which jobs a pool has.
func (s *space) release(p *pool) {
	maps.DeleteFunc(s.held, func(_ jobKey, holder *pool) bool { return holder == p })
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

// hold notes that a pool has a job, and drops what ledgers have forgotten when it may be more than what they know.
func (s *space) hold(key jobKey, p *pool) {
	s.held[key] = p
	if len(s.held) < s.tidyAt {
		return
	}
	for key := range s.held {
		s.holder(key)
	}
	s.tidyAt = 2*len(s.held) + 10_000
}
