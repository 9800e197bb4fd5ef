// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"cmp"
	"context"
	"hash/fnv"
	"slices"
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
)

var outcomes = [...]string{taken: "taken", known: "known", unmatched: "unmatched", irrelevant: "irrelevant", foreign: "foreign"}

// Accept takes an event into memory, and returns webhook.ErrNotReady if this process doesn't lead or doesn't know
// the connection yet. An event may come more than once.
func (k *JobTracker) Accept(ctx context.Context, d webhook.Delivery) error {
	owners := k.ownersOf(ctx, d)
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.account.conns[d.Connection]
	if !k.leading || c == nil || !c.placed {
		return webhook.ErrNotReady
	}
	if c.sender == unknownSender && !c.scope.Covers(c.jobOf(d)) {
		gh, ok := k.GitHub(c.key)
		if !ok {
			return webhook.ErrNotReady // it is asked for again, when it is known whose webhook sent it
		}
		c.learnSender(gh)
	}
	k.apply(k.account.accept(c, d, owners, k.Now()))
	return nil
}

// accept adds an event that came in, or was asked for, to the account.
func (a *account) accept(c *connection, d webhook.Delivery, owners owners, now time.Time) changes {
	c.seen.add(d.GUID, now)
	result := irrelevant
	switch job := c.jobOf(d); {
	case !c.covers(job):
		result = foreign
	case d.Event == webhook.WorkflowJobEvent && d.Job != nil:
		result = a.acceptJob(job, d, owners, now)
	case d.Event != webhook.WorkflowJobEvent:
		result = a.addSlack(job, d, now)
	}
	if result == taken {
		c.lookBack.relevant = now
	}
	events.WithLabelValues(d.Event, outcomes[result]).Inc()
	return a.flush()
}

// owners are the pools whose Runner has a certain job, by their namespace.
type owners map[string]types.NamespacedName

// in returns the pool of a space; nil if none of its Runners has the job.
func (o owners) in(s *space, pools map[types.NamespacedName]*pool) *pool {
	if p := pools[o[s.pools]]; p != nil && p.space() == s.spaceKey {
		return p
	}
	return nil
}

// ownersOf returns the pools of the Runner that has the job of an event; none if it is no Runner on a connection of this namespace, or
// another registration of its name. The cache knows it: a runner is there long before its job.
func (k *JobTracker) ownersOf(ctx context.Context, d webhook.Delivery) owners {
	if d.Job == nil {
		return nil
	}
	return k.poolsOf(ctx, k.namespacesOn(d.Connection.Namespace), d.Job.RunnerName, d.Job.RunnerID)
}

// namespacesOn are those of pools on connections of a namespace.
func (k *JobTracker) namespacesOn(connections string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []string
	for _, s := range k.account.spacesOf(connections) {
		all = append(all, s.pools)
	}
	return all
}

// poolsOf returns the pools of the Runners of a name in namespaces, registered with an id or, by a scale set, with any.
func (k *JobTracker) poolsOf(ctx context.Context, namespaces []string, name string, id int64) owners {
	if name == "" {
		return nil
	}
	found := owners{}
	for _, ns := range namespaces {
		r := &v1alpha1.Runner{}
		if k.Client.Get(ctx, types.NamespacedName{Namespace: ns, Name: name}, r) != nil {
			continue
		}
		if r.Spec.REST == nil || id != 0 && (r.Status.RunnerID == 0 || r.Status.RunnerID == id) {
			found[ns] = types.NamespacedName{Namespace: ns, Name: r.Spec.PoolRef.Name}
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

// acceptJob gives an event's job to the pool that it is for, once to those that act and once to those that only observe.
func (a *account) acceptJob(job jobmatch.Job, d webhook.Delivery, owners owners, now time.Time) outcome {
	state := stateOf(d.Action, d.Job.Status)
	if state == 0 || isStale(d, state, now) {
		return irrelevant
	}
	result := unmatched
	for _, s := range a.spacesOf(d.Connection.Namespace) {
		u := update{
			job:   job,
			event: reservation.Event{ID: d.Job.ID, State: state, Repository: d.Repository.FullName, Runner: d.Job.RunnerName},
			owner: owners.in(s, a.pools), news: d.Job,
		}
		if e, ok := jobEvent(d); ok && u.owner != nil && u.owner.rest && u.owner.serves(job) { // only the webhook says at once who has the job
			a.pending.record = append(a.pending.record, recordedJob{pool: u.owner.key, runner: d.Job.RunnerName, event: e})
		}
		result = min(result, a.enter(s, u, now), a.enter(s, u.observed(), now))
	}
	return result
}

// jobOf is what pools are asked about: the job of an event, or its repository if it is of none.
func (c *connection) jobOf(d webhook.Delivery) jobmatch.Job {
	job := jobmatch.Job{Host: c.scope.Host, Repository: d.Repository.FullName, OfUser: d.Repository.OwnerType == "User", Enterprise: c.enterprise(d)}
	if d.Job != nil {
		job.Labels = d.Job.Labels
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
	return u.owner != nil && u.owner.jobs && u.owner.serves(u.job)
}

// enter gives a job to its pool, or the update to the pool that has it.
func (a *account) enter(s *space, u update, now time.Time) outcome {
	holder := s.holder(u.key())
	if u.isOwned() && u.owner != holder { // it is the pool's whose runner has it, wherever it was expected
		if holder != nil {
			a.enterAt(holder, u.event, now)
		}
		holder = u.owner
	}
	if u.event.State == reservation.Elsewhere && (u.observes || u.isOwned()) {
		u.event.State = reservation.Running
	}
	if holder == nil {
		holder = a.winner(s.class(u.observes), u.job, now)
	}
	if holder == nil {
		s.keepUnmatched(u, now)
		return unmatched
	}
	before := holder.ledger.Has(u.event.ID)
	if !a.enterAt(holder, u.event, now) {
		return known
	}
	s.hold(u.key(), holder)
	if u.news != nil {
		holder.measure(a.meter, newsOfWebhook(u), before)
	}
	return taken
}

// enterAt enters an event of a job at a pool, which is woken if it then needs another number of runners.
func (a *account) enterAt(p *pool, e reservation.Event, now time.Time) bool {
	before := p.ledger.Counts()
	changed := p.ledger.Record(e, now)
	a.noteCounts(p, before, changed, e.Repository, now)
	return changed
}

// noteCounts notes what follows from an entry in a pool's ledger, given the counts before and whether it changed. Jobs for which there was
// no room are found again by a comparison with GitHub.
func (a *account) noteCounts(p *pool, before reservation.Counts, changed bool, repository string, now time.Time) {
	counts := p.ledger.Counts()
	if counts.Dropped > before.Dropped {
		a.suspect(p, repository, now)
	}
	if !changed {
		return
	}
	a.changed(p, now)
	if counts.Jobs() != before.Jobs() || counts.Queued != before.Queued {
		a.wake(p)
	}
}

// winner is the pool that a job is for; nil if none is.
func (a *account) winner(c *class, job jobmatch.Job, now time.Time) *pool {
	i := jobmatch.Winner(job, c.matches, func(i int) jobmatch.Visibility { return a.visible(c.pools[i], job.Repository, now) })
	if i < 0 {
		return nil
	}
	return c.pools[i]
}

// addSlack counts an event for all triggers that it fits.
func (a *account) addSlack(job jobmatch.Job, d webhook.Delivery, now time.Time) outcome {
	result := irrelevant
	for _, s := range a.spacesOf(d.Connection.Namespace) {
		for _, p := range s.members {
			if p.serves(job) {
				result = min(result, a.addSlackAt(p, d, now))
			}
		}
	}
	return result
}

// addSlackAt counts an event for the triggers of a pool that it fits.
func (a *account) addSlackAt(p *pool, d webhook.Delivery, now time.Time) outcome {
	result := irrelevant
	for i := range p.triggers {
		t := &p.triggers[i]
		if !fits(t, d) || a.visible(p, d.Repository.FullName, now) == jobmatch.Hidden {
			continue
		}
		result = min(result, known)
		if p.slack.Record(t.Name, cmp.Or(d.Identity, d.GUID), slackFrom(d).Add(t.GetDuration()), now) {
			result = taken
			a.changed(p, now)
			a.wake(p)
		}
	}
	return result
}

// slackLag is how much later than it happened an event may be told of, clocks that differ included.
const slackLag = 5 * time.Minute

// slackFrom is when an event begins to count: when it was told of, unless it is an old one that somebody tells of again.
func slackFrom(d webhook.Delivery) time.Time {
	if !d.Happened.IsZero() && d.Happened.Add(slackLag).Before(d.At) {
		return d.Happened
	}
	return d.At
}

// fits reports whether an event is one that a trigger waits for.
func fits(t *v1alpha1.SlackTrigger, d webhook.Delivery) bool {
	if string(t.Event) != d.Event || !jobmatch.AnyGlob(t.Repositories, d.Repository.FullName) {
		return false
	}
	if len(t.Actions) > 0 && d.Event != webhook.PushEvent && !slices.Contains(t.Actions, d.Action) {
		return false
	}
	switch d.Event {
	case webhook.CheckRunEvent:
		return d.CheckRun != nil && (t.Status == "" || t.Status == d.CheckRun.Status) && anyOf(t.Names, d.CheckRun.Name, jobmatch.GlobAll)
	case webhook.PushEvent:
		return d.Branch != "" && anyOf(t.Branches, d.Branch, jobmatch.Glob)
	}
	return anyOf(t.Branches, d.Branch, jobmatch.Glob)
}

func anyOf(patterns []string, text string, glob func(pattern, text string) bool) bool {
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool { return glob(p, text) })
}

// hash of a name that is remembered by it.
func hash(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(strings.ToLower(name))) // never fails
	return h.Sum64()
}
