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

// pool is the state of a RunnerPool. The lock of its space guards it.
type pool struct {
	key   types.NamespacedName
	space *space
	owner metav1.OwnerReference
	conn  types.NamespacedName
	rest  bool
	hold  time.Duration
	now   *candidate // the jobs and events that the pool asks for

	ledger *reservation.Ledger
	boosts *reservation.Boosts

	saved saved
	woken time.Time // when the pool will next be, or was last, woken
}

// saved describes which changes of a pool's jobs and boosts are stored in its ConfigMap.
type saved struct {
	loaded    bool      // the stored jobs have been read
	unwritten time.Time // time of the first change that is not being written; zero if there is none
	writing   time.Time // time of the first change that is being written; zero if none is
	next      time.Time // earliest time of the next write
	failed    int       // consecutive failed writes
	version   string    // resourceVersion of the ConfigMap; empty if unknown or if there is none
	swept     time.Time // when expired jobs were last removed
}

// durable returns the time before which all changes are stored; the zero time if unknown.
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

// wanted reports whether the pool needs events: it counts jobs of webhooks, or it has boosts.
func (p *pool) wanted() bool { return p.now.jobs || len(p.now.triggers) > 0 }

func (p *pool) hasTrigger(name string) bool {
	return slices.ContainsFunc(p.now.triggers, func(t trigger) bool { return t.Name == name })
}

// serves reports whether the pool's runners may run jobs of a repository.
func (p *pool) serves(job jobmatch.Job) bool { return p.now.placed && p.now.match.Scope.Covers(job) }

// signals returns the demand according to events.
func (p *pool) signals(now time.Time) []demand.Signal {
	var all []demand.Signal
	if p.now.jobs {
		c := p.ledger.Counts()
		reason := fmt.Sprintf("%d waiting, %d running", c.Queued, c.Running)
		if c.Dropped > 0 {
			reason += fmt.Sprintf(", and no room for %d more", c.Dropped)
		}
		all = append(all, demand.Signal{Name: v1alpha1.DemandWebhook, Jobs: new(int32(c.Jobs())), Reason: reason, At: now}) //nolint:gosec // it is bounded
	}
	for i := range p.now.triggers {
		t := &p.now.triggers[i]
		n, _ := p.boosts.Count(t.Name, now)
		all = append(all, demand.Signal{
			Name: t.Name, Idle: new(int32(n) * t.GetIdle()), At: now, //nolint:gosec // it is bounded
			Reason: fmt.Sprintf("%s events in %s: %d", t.Event, t.GetDuration(), n),
		})
	}
	return all
}

// learn updates the pool from its object, except for the data in the candidate.
func (p *pool) learn(obj *v1alpha1.RunnerPool) {
	p.owner = *metav1.NewControllerRef(obj, v1alpha1.GroupVersion.WithKind("RunnerPool"))
	p.conn = obj.Spec.ConnectionRef.From(obj.Namespace)
	p.rest = obj.Spec.GetRegistration() == v1alpha1.RegisterREST
	p.hold = v1alpha1.DefaultHoldFor
	if w := obj.Spec.Demand.Webhook; w != nil {
		p.hold = w.GetHoldFor()
	}
}

// mayUse returns an error unless pools of a namespace may use a connection.
func mayUse(ctx context.Context, a Access, conn types.NamespacedName, namespace string) error {
	if a == nil && conn.Namespace != namespace {
		return &demand.NoSignal{Reason: "connections of other namespaces are not allowed"}
	}
	if a == nil {
		return nil
	}
	return a.Check(ctx, conn, namespace)
}

// jobKey identifies a job in a space. A job has a second key for pools that only observe, because they count it in addition
// to the pool that runs it.
type jobKey struct {
	host     string
	id       int64
	observes bool
}

func (p *pool) jobKey(id int64) jobKey {
	return jobKey{host: p.now.match.Scope.Host, id: id, observes: p.now.observes}
}

// claim records the pool as the holder of the jobs in its ledger. If another pool has the same job, the pool with the later
// state keeps it.
func (s *space) claim(p *pool, now time.Time) {
	p.ledger.All(func(id int64, state reservation.State) bool {
		key := p.jobKey(id)
		other := s.holder(key)
		if other != nil && other != p && other.ledger.Has(id) >= state {
			s.dropJob(p, id, now)
			return true
		}
		s.hold(key, p)
		if other != nil && other != p {
			s.dropJob(other, id, now)
		}
		return true
	})
}

// dropJob removes a job from a pool, because another pool has it.
func (s *space) dropJob(p *pool, id int64, now time.Time) {
	p.ledger.Drop(id)
	s.noteChanged(p, now)
	s.wake(p, now)
}

// holder returns the pool that has a job; nil if there is none. It removes an entry of held if the pool's ledger no longer
// contains the job.
func (s *space) holder(key jobKey) *pool {
	p := s.held[key]
	if p != nil && p.ledger.Has(key.id) == 0 {
		delete(s.held, key)
		return nil
	}
	return p
}

// hold records that a pool has a job. When held has tidyAt entries, hold removes the entries of jobs that the ledgers no
// longer contain.
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
