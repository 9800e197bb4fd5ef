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

// outcome classifies an event. When outcomes are merged, the smaller value wins.
type outcome int

const (
	taken      outcome = iota // the event changed the jobs or the boosts of a pool
	known                     // the event contained nothing new
	unmatched                 // no pool serves the job
	irrelevant                // no pool needs the event
	foreign                   // the connection does not cover the repository
	overloaded                // too many events waited for a comparison with the pools
)

var outcomes = [...]string{taken: "taken", known: "known", unmatched: "unmatched", irrelevant: "irrelevant", foreign: "foreign", overloaded: "overloaded"}

// Accept records an event in memory. It returns webhook.ErrNotReady if this process is not the leader or does not
// know the connection yet. An event may arrive more than once.
func (k *JobTracker) Accept(ctx context.Context, d webhook.Delivery) error {
	c, leads := k.connection(d.Connection)
	if !leads || c == nil || !c.isReady(d, k.GitHub) {
		return webhook.ErrNotReady // a check of the webhook's deliveries recovers the event later
	}
	k.accept(c, d, k.ownersOf(ctx, d))
	return nil
}

// accept adds an event to the demand of pools. The event was received from GitHub or recovered from the list of deliveries.
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

// owners maps a namespace to the pool in it whose Runner has a certain job.
type owners map[string]types.NamespacedName

// in returns the pool of a space whose Runner has the job; nil if there is none.
func (o owners) in(s *space) *pool { return s.members[o[s.pools].Name] }

// ownersOf returns the pools whose Runner has the job of an event. It considers only pools that may use connections of the
// event's namespace. A Runner with the same name as the job's runner but another registration does not count. The client's
// cache contains the Runner, because Corral creates it long before it gets a job.
func (k *JobTracker) ownersOf(ctx context.Context, d webhook.Delivery) owners {
	if d.Job == nil {
		return nil
	}
	return k.poolsOf(ctx, k.spacesOf(d.Connection.Namespace), d.Job.RunnerName, d.Job.RunnerID)
}

// poolsOf looks for Runners with the given name in the namespaces of the spaces, and returns their pools. A Runner without a
// scale set counts only if id is known, and equals the Runner's own ID unless that is still unknown.
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

// stateOf returns a job's state according to an event; 0 if the event contains no known state. If action and status differ,
// the later state counts, because status is the job's status when GitHub sent the event, and the action may be older. The
// exception is a job that waits for an approval: its action is queued and its status is waiting.
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

// oldest is the maximum age of a waiting job: thirty days for an approval, plus a day for a runner. GitHub ends older jobs.
const oldest = 31 * 24 * time.Hour

// isStale reports whether an event is about a waiting job that GitHub has ended long ago. This happens if an old delivery is
// redelivered.
func isStale(d webhook.Delivery, state reservation.State, now time.Time) bool {
	return state <= reservation.Queued && !d.Job.CreatedAt.IsZero() && now.Sub(d.Job.CreatedAt) > oldest
}

// acceptJob assigns the job of an event to a pool, once among the pools that have runners and once among the pools that only
// observe. If too many events wait for a comparison with a namespace's pools, acceptJob skips this namespace, and a later
// comparison with GitHub's lists finds the job.
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
		if e, ok := jobEvent(d); ok && u.owner != nil && u.owner.rest && u.owner.serves(job) { // without a scale set, only the webhook reports this at once
			k.recordLater(u.owner.key, e, now)
		}
		result = min(result, s.enter(u, fits, now), s.enter(u.observed(), fits, now))
		s.mu.Unlock()
	}
	return result
}

// jobOf returns the job of an event for matching with pools. If the event has no job, it contains only the repository.
func (c *connection) jobOf(d webhook.Delivery) jobmatch.Job {
	job := jobmatch.Job{Host: c.scope.Host, Repository: d.Repository.FullName, OfUser: d.Repository.OwnerType == "User", Enterprise: c.enterprise(d)}
	if d.Job != nil {
		job.Labels = jobmatch.Labels(d.Job.Labels)
	}
	return job
}

// enterprise returns the enterprise of a delivery. An enterprise's own webhook only sends events of that enterprise.
func (c *connection) enterprise(d webhook.Delivery) string {
	if c.scope.Kind == jobmatch.Enterprise {
		return cmp.Or(d.Enterprise, c.scope.Path)
	}
	return d.Enterprise
}

// update is an event of a job, with the facts that are needed to find its pool.
type update struct {
	job      jobmatch.Job
	event    reservation.Event
	owner    *pool                // pool whose Runner has the job; nil if there is none
	observes bool                 // for pools that only observe
	news     *webhook.WorkflowJob // the event's data about the job; nil for a listed job
}

// observed returns the same update for pools that only observe. They have no runners, and count a job while any runner has
// it.
func (u update) observed() update {
	u.observes, u.owner = true, nil
	return u
}

func (u update) key() jobKey { return jobKey{host: u.job.Host, id: u.event.ID, observes: u.observes} }

// isOwned reports whether a Runner of a pool has the job, and this pool counts jobs of webhooks and may run jobs of the
// repository.
func (u update) isOwned() bool {
	return u.owner != nil && u.owner.now.jobs && u.owner.serves(u.job)
}

// enter assigns a job to a pool, or passes the update to the pool that already has it.
func (s *space) enter(u update, fits map[*candidate]bool, now time.Time) outcome {
	holder := s.holder(u.key())
	if u.isOwned() && u.owner != holder { // the pool whose runner has the job gets it, even if another pool was expected to
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

// enterAt records an event of a job in a pool's ledger, and wakes the pool if it then needs a different number of runners.
// It reports whether the ledger changed.
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

// noteCounts handles the consequences of an entry in a pool's ledger. before has the counts before the entry, and changed is
// true if the ledger changed. If the ledger had no room for a job, noteCounts schedules a comparison with GitHub, which
// finds the job later.
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

// winner returns the pool that should get a job, among the matching candidates; nil if there is none.
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

// addBoosts adds an event to the boosts of all pools whose triggers it matches.
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

// addBoostsAt adds an event to boosts of one pool.
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

// boostLag is the maximum delay between an event and its delivery, including differences between clocks.
const boostLag = 5 * time.Minute

// boostFrom returns the time from which an event counts for a boost: the delivery time or, for a late redelivery, the time
// of the event.
func boostFrom(d webhook.Delivery) time.Time {
	if !d.Happened.IsZero() && d.Happened.Add(boostLag).Before(d.At) {
		return d.Happened
	}
	return d.At
}

// hash returns a hash of a name, ignoring case. It is stored instead of the name.
func hash(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(strings.ToLower(name))) // never fails
	return h.Sum64()
}
