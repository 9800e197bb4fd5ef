// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"cmp"
	"context"
	"hash/fnv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/jobmatch"
	"github.com/corral-dev/corral/internal/reservation"
	"github.com/corral-dev/corral/internal/webhook"
)

// outcome is what becomes of an event. The more it means, the smaller it is.
type outcome int

const (
	taken      outcome = iota // it had something new
	known                     // all of it was known
	unmatched                 // no pool is for it
	irrelevant                // no pool asks for its kind
	foreign                   // it is about a repository that its connection doesn't cover
	overloaded                // too many events waited for a comparison with the pools
)

var outcomes = [...]string{taken: "taken", known: "known", unmatched: "unmatched", irrelevant: "irrelevant", foreign: "foreign", overloaded: "overloaded"}

// Accept takes an event into memory, and returns webhook.ErrNotReady if this process doesn't lead or doesn't know
// the connection yet. An event may come more than once.
func (k *JobTracker) Accept(ctx context.Context, d webhook.Delivery) error {
	c, leads := k.connection(d.Connection)
	if !leads || c == nil || !c.isReady(d, k.GitHub) {
		return webhook.ErrNotReady // it is asked for again
	}
	k.accept(c, d, k.ownersOf(ctx, d))
	return nil
}

// accept adds an event that came in, or was asked for, to what pools are told.
func (k *JobTracker) accept(c *connection, d webhook.Delivery, owners owners) {
	now, result := k.Now(), irrelevant
	var job jobmatch.Job
	c.do(func() {
		c.seen.add(d.GUID, now)
		if job = c.jobOf(d); !c.covers(job) {
			result = foreign
		}
	})
	switch {
	case result == foreign:
	case d.Event == webhook.WorkflowJobEvent && d.Job != nil:
		result = k.acceptJob(job, d, owners, now)
	case d.Event != webhook.WorkflowJobEvent:
		result = k.addBoosts(job, d, now)
	}
	if result == taken {
		c.do(func() { c.lookBack.relevant = now })
	}
	events.WithLabelValues(d.Event, outcomes[result]).Inc()
}

// owners are the pools whose Runner has a certain job, by their namespace.
type owners map[string]types.NamespacedName

// in returns the pool of a space; nil if none of its Runners has the job.
func (o owners) in(s *space) *pool { return s.members[o[s.pools].Name] }

// ownersOf returns the pools of the Runner that has the job of an event; none if it is no Runner on a connection of this namespace, or
// another registration of its name. The cache knows it: a runner is there long before its job.
func (k *JobTracker) ownersOf(ctx context.Context, d webhook.Delivery) owners {
	if d.Job == nil {
		return nil
	}
	return k.poolsOf(ctx, k.spacesOf(d.Connection.Namespace), d.Job.RunnerName, d.Job.RunnerID)
}

// poolsOf returns the pools of the Runners of a name in the namespaces of spaces, registered with an id or, by a scale set, with any.
func (k *JobTracker) poolsOf(ctx context.Context, spaces []*space, name string, id int64) owners {
	if name == "" {
		return nil
	}
	found := owners{}
	for _, s := range spaces {
		r := &v1alpha1.Runner{}
		if k.Client.Get(ctx, types.NamespacedName{Namespace: s.pools, Name: name}, r) != nil {
			continue
		}
		if r.Spec.REST == nil || id != 0 && (r.Status.RunnerID == 0 || r.Status.RunnerID == id) {
			found[s.pools] = types.NamespacedName{Namespace: s.pools, Name: r.Spec.PoolRef.Name}
		}
	}
	return found
}

// stateOf returns how far an event says that a job has come; 0 if it says nothing that is known. Where action and status differ, the
// later counts: GitHub tells the status of when it sends. But a job that waits for an approval is told as queued, with the status waiting.
func stateOf(action, status string) reservation.State {
	states := map[string]reservation.State{
		"waiting": reservation.Waiting, "pending": reservation.Waiting, "requested": reservation.Waiting, "queued": reservation.Queued,
		"in_progress": reservation.Elsewhere, "completed": reservation.Done,
	}
	if action == "queued" && states[status] == reservation.Waiting {
		return reservation.Waiting
	}
	return max(states[action], states[status])
}

// oldest is how long ago a job may have been made that waits: thirty days for an approval, and a day for a runner. GitHub ends it then.
const oldest = 31 * 24 * time.Hour

// isStale reports whether an event is an old one that somebody sends again.
func isStale(d webhook.Delivery, state reservation.State, now time.Time) bool {
	return state <= reservation.Queued && !d.Job.CreatedAt.IsZero() && now.Sub(d.Job.CreatedAt) > oldest
}

// acceptJob gives an event's job to the pool that it is for, once to those that act and once to those that only observe. Where too many events
// wait for a comparison with a namespace's pools, the job is found by a list of GitHub's instead.
func (k *JobTracker) acceptJob(job jobmatch.Job, d webhook.Delivery, owners owners, now time.Time) outcome {
	state := stateOf(d.Action, d.Job.Status)
	if state == 0 || isStale(d, state, now) {
		return irrelevant
	}
	result := overloaded
	for _, s := range k.spacesOf(d.Connection.Namespace) {
		fits, ok := settle(s, maxWaiting, func() candidates { return s.asking(job.Labels) }, jobWork(job), func(c *candidate) bool { return c.fits(job) })
		if !ok {
			s.suspect(suspect{d.Connection, d.Repository.FullName}, now)
			s.mu.Unlock()
			continue
		}
		u := update{
			job:   job,
			event: reservation.Event{ID: d.Job.ID, State: state, Repository: d.Repository.FullName, Runner: d.Job.RunnerName},
			owner: owners.in(s), news: d.Job,
		}
		if e, ok := jobEvent(d); ok && u.owner != nil && u.owner.rest && u.owner.serves(job) { // only the webhook says at once who has the job
			k.recordLater(u.owner.key, e, now)
		}
		result = min(result, s.enter(u, fits, now), s.enter(u.observed(), fits, now))
		s.mu.Unlock()
	}
	return result
}

// jobOf is what pools are asked about: the job of an event, or its repository if it is of none.
func (c *connection) jobOf(d webhook.Delivery) jobmatch.Job {
	job := jobmatch.Job{Host: c.scope.Host, Repository: d.Repository.FullName, OfUser: d.Repository.OwnerType == "User", Enterprise: c.enterprise(d)}
	if d.Job != nil {
		job.Labels = jobmatch.Labels(d.Job.Labels)
	}
	return job
}

// enterprise that a delivery is from. An enterprise's own webhook has no other's.
func (c *connection) enterprise(d webhook.Delivery) string {
	if c.scope.Kind == jobmatch.Enterprise {
		return cmp.Or(d.Enterprise, c.scope.Path)
	}
	return d.Enterprise
}

// update is an event of a job, and what is needed to find the pool that has it.
type update struct {
	job      jobmatch.Job
	event    reservation.Event
	owner    *pool                // whose Runner has the job; nil if no pool's has
	observes bool                 // it is for the pools that observe
	news     *webhook.WorkflowJob // what an event tells of the job
}

// observed is the same update for pools that observe: they have no runners, and count a job as long as any runner has it.
func (u update) observed() update {
	u.observes, u.owner = true, nil
	return u
}

func (u update) key() jobKey { return jobKey{host: u.job.Host, id: u.event.ID, observes: u.observes} }

// isOwned reports whether the job is on a runner of a pool that counts it.
func (u update) isOwned() bool {
	return u.owner != nil && u.owner.now.jobs && u.owner.serves(u.job)
}

// enter gives a job to its pool, or the update to the pool that has it.
func (s *space) enter(u update, fits map[*candidate]bool, now time.Time) outcome {
	holder := s.holder(u.key())
	if u.isOwned() && u.owner != holder { // it is the pool's whose runner has it, wherever it was expected
		if holder != nil {
			s.enterAt(holder, u.event, now)
		}
		holder = u.owner
	}
	if u.event.State == reservation.Elsewhere && (u.observes || u.isOwned()) {
		u.event.State = reservation.Running
	}
	if holder == nil {
		holder = s.winner(u, fits, now)
	}
	if holder == nil {
		s.keepUnmatched(u, now)
		return unmatched
	}
	s.removeUnmatched(u.key())
	before := holder.ledger.Has(u.event.ID)
	if !s.enterAt(holder, u.event, now) {
		return known
	}
	s.hold(u.key(), holder)
	if u.news != nil {
		holder.measure(s.tracker.Meter, newsOfWebhook(u), before)
	}
	return taken
}

// enterAt enters an event of a job at a pool, which is woken if it then needs another number of runners.
func (s *space) enterAt(p *pool, e reservation.Event, now time.Time) bool {
	before := p.ledger.Counts()
	changed := false
	if p.ledger.Has(e.ID) == 0 && !s.hasRoom() {
		p.ledger.Refuse()
	} else {
		changed = p.ledger.Record(e, now)
	}
	s.noteCounts(p, before, changed, e.Repository, now)
	return changed
}

// noteCounts notes what follows from an entry in a pool's ledger, given the counts before and whether it changed. Jobs for which there was
// no room are found again by a comparison with GitHub.
func (s *space) noteCounts(p *pool, before reservation.Counts, changed bool, repository string, now time.Time) {
	counts := p.ledger.Counts()
	if counts.Dropped > before.Dropped {
		s.suspect(suspect{p.conn, repository}, now)
	}
	if !changed {
		return
	}
	s.noteChanged(p, now)
	if counts.Jobs() != before.Jobs() || counts.Queued != before.Queued {
		s.wake(p, now)
	}
}

// winner is the pool that a job is for, of the candidates that it fits; nil if it is for none.
func (s *space) winner(u update, fits map[*candidate]bool, now time.Time) *pool {
	best := &candidate{}
	for c := range s.asking(u.job.Labels) {
		if fits[c] && c.observes == u.observes && c.match.Has(u.job.Labels) && (best.pool == nil || jobmatch.Compare(&c.match, &best.match) < 0) &&
			s.visible(c.pool, u.job.Repository, now) != jobmatch.Hidden {
			best = c
		}
	}
	return best.pool
}

// addBoosts counts an event for all triggers that it fits.
func (k *JobTracker) addBoosts(job jobmatch.Job, d webhook.Delivery, now time.Time) outcome {
	result, length := overloaded, max(len(d.Repository.FullName), len(d.Branch))
	if d.CheckRun != nil {
		length = max(length, len(d.CheckRun.Name))
	}
	work := func(c *candidate) int { return c.ofEvent.with(length) }
	for _, s := range k.spacesOf(d.Connection.Namespace) {
		fits, ok := settle(s, maxWaiting, func() candidates { return s.index[asked{event: d.Event}] }, work, func(c *candidate) []*trigger { return c.triggered(job, d) })
		if ok {
			result = min(result, irrelevant)
		}
		for c := range s.index[asked{event: d.Event}] {
			result = min(result, s.addBoostsAt(c.pool, fits[c], d, now))
		}
		s.mu.Unlock()
	}
	return result
}

// addBoostsAt counts an event for triggers of a pool.
func (s *space) addBoostsAt(p *pool, triggers []*trigger, d webhook.Delivery, now time.Time) outcome {
	if len(triggers) == 0 || s.visible(p, d.Repository.FullName, now) == jobmatch.Hidden {
		return irrelevant
	}
	result := known
	for _, t := range triggers {
		if p.boosts.Record(t.Name, cmp.Or(d.Identity, d.GUID), boostFrom(d).Add(t.GetDuration()), now) {
			result = taken
			s.noteChanged(p, now)
			s.wake(p, now)
		}
	}
	return result
}

// boostLag is how much later than it happened an event may be told of, clocks that differ included.
const boostLag = 5 * time.Minute

// boostFrom is when an event begins to count: when it was told of, unless it is an old one that somebody tells of again.
func boostFrom(d webhook.Delivery) time.Time {
	if !d.Happened.IsZero() && d.Happened.Add(boostLag).Before(d.At) {
		return d.Happened
	}
	return d.At
}

// hash of a name that is remembered by it.
func hash(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(strings.ToLower(name))) // never fails
	return h.Sum64()
}
