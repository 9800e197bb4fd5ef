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
	taken      outcome = iota // it told of something new
	known                     // it told of what was known
	unmatched                 // no pool is for it
	irrelevant                // it is of a kind that nobody waits for
	foreign                   // it is about a repository that its connection doesn't cover
)

var outcomes = [...]string{taken: "taken", known: "known", unmatched: "unmatched", irrelevant: "irrelevant", foreign: "foreign"}

// Take takes an event in. It does so in memory, and says webhook.ErrNotReady if this process doesn't lead or doesn't know
// the connection yet. An event may come more than once.
func (k *Desk) Take(ctx context.Context, d webhook.Delivery) error {
	runners := k.runnersOf(ctx, d)
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.conns[d.Connection]
	if !k.leading || c == nil || !c.placed {
		return webhook.ErrNotReady
	}
	if c.speaker == unknownSpeaker && !c.scope.Covers(c.jobOf(d)) {
		gh, ok := k.GitHub(c.key)
		if !ok {
			return webhook.ErrNotReady // it is asked for again, when it is known whose word it is
		}
		c.learn(gh)
	}
	k.take(c, d, runners)
	return nil
}

// take takes an event in that came in, or was asked for.
func (k *Desk) take(c *connection, d webhook.Delivery, runners runners) {
	c.know(d.GUID, k.Now())
	result := irrelevant
	switch {
	case d.Event == webhook.WorkflowJobEvent && d.Job != nil:
		result = k.takeJob(c, d, runners)
	case d.Event != webhook.WorkflowJobEvent:
		result = k.takeSlack(c, d)
	}
	if result == taken {
		c.relevant = k.Now()
	}
	events.WithLabelValues(d.Event, outcomes[result]).Inc()
}

// runners are pools whose Runner has a certain job, by their namespace.
type runners map[string]types.NamespacedName

// in returns the pool of a space; nil if none of its Runners has the job.
func (r runners) in(s *space, pools map[types.NamespacedName]*pool) *pool {
	if p := pools[r[s.pools]]; p != nil && p.space() == s.spaceKey {
		return p
	}
	return nil
}

// runnersOf returns the pools of the Runner that has the job of an event; none if it is no Runner on a connection of this namespace, or
// another registration of its name. The cache knows it: a runner is there long before its job.
func (k *Desk) runnersOf(ctx context.Context, d webhook.Delivery) runners {
	if d.Job == nil {
		return nil
	}
	return k.poolsOf(ctx, k.namespacesOn(d.Connection.Namespace), d.Job.RunnerName, d.Job.RunnerID)
}

// namespacesOn are those of pools on connections of a namespace.
func (k *Desk) namespacesOn(connections string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []string
	for _, s := range k.spacesOf(connections) {
		all = append(all, s.pools)
	}
	return all
}

func (k *Desk) poolsOf(ctx context.Context, namespaces []string, name string, id int64) runners {
	if name == "" {
		return nil
	}
	found := runners{}
	for _, ns := range namespaces {
		if p := k.poolOf(ctx, types.NamespacedName{Namespace: ns, Name: name}, id); p.Name != "" {
			found[ns] = p
		}
	}
	return found
}

func (k *Desk) poolOf(ctx context.Context, key types.NamespacedName, id int64) types.NamespacedName {
	r := &v1alpha1.Runner{}
	if k.Client.Get(ctx, key, r) != nil {
		return types.NamespacedName{}
	}
	if r.Spec.REST != nil && (id == 0 || r.Status.RunnerID != 0 && r.Status.RunnerID != id) {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: key.Namespace, Name: r.Spec.PoolRef.Name}
}

// stateOf returns how far an event says that a job has come; 0 if it says nothing that is known. Where action and status differ, the
// later counts: GitHub tells the status of when it sends.
func stateOf(action, status string) reservation.State {
	states := map[string]reservation.State{
		"waiting": reservation.Waiting, "pending": reservation.Waiting, "requested": reservation.Waiting, "queued": reservation.Queued,
		"in_progress": reservation.Elsewhere, "completed": reservation.Done,
	}
	return max(states[action], states[status])
}

// oldest is how long ago a job may have been made that waits: thirty days for an approval, and a day for a runner. GitHub ends it then.
const oldest = 31 * 24 * time.Hour

// isStale says whether an event is an old one that somebody sends again.
func isStale(d webhook.Delivery, state reservation.State, now time.Time) bool {
	return state <= reservation.Queued && !d.Job.CreatedAt.IsZero() && now.Sub(d.Job.CreatedAt) > oldest
}

// takeJob gives an event's job to the pool that it is for, once to those that act and once to those that only observe.
func (k *Desk) takeJob(c *connection, d webhook.Delivery, runners runners) outcome {
	state, now := stateOf(d.Action, d.Job.Status), k.Now()
	if state == 0 || isStale(d, state, now) {
		return irrelevant
	}
	job := c.jobOf(d)
	if !c.hears(job) {
		return foreign
	}
	result := unmatched
	for _, s := range k.spacesOf(d.Connection.Namespace) {
		n := news{
			job:   job,
			event: reservation.Event{ID: d.Job.ID, State: state, Repository: d.Repository.FullName, Runner: d.Job.RunnerName},
			owner: runners.in(s, k.pools),
		}
		k.recordLater(d, job, n.owner, now)
		if state == reservation.Done {
			n.ended = d.Job
		}
		result = min(result, k.enter(s, n, now), k.enter(s, n.observed(), now))
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

// hears says whether the connection's webhook may tell of a repository: whoever has the secret of a repository's or an organization's
// webhook speaks for that only. An App's webhook tells of all that the App is installed on.
func (c *connection) hears(job jobmatch.Job) bool {
	return c.speaker == appSpeaker || c.scope.Covers(job)
}

// enterprise that a delivery is from. An enterprise's own webhook has no other's.
func (c *connection) enterprise(d webhook.Delivery) string {
	if c.scope.Kind == jobmatch.Enterprise {
		return cmp.Or(d.Enterprise, c.scope.Path)
	}
	return d.Enterprise
}

// news of a job, and what is needed to find whose it is.
type news struct {
	job      jobmatch.Job
	event    reservation.Event
	owner    *pool                // whose Runner has the job; nil if it is nobody's
	observes bool                 // it is for the pools that observe
	ended    *webhook.WorkflowJob // the job, if it has ended
}

// observed is the same news for pools that observe: they have no runners, and count a job as long as anybody's runner has it.
func (n news) observed() news {
	n.observes, n.owner = true, nil
	return n
}

// isOwned says whether the job is on a runner of a pool that counts it.
func (n news) isOwned() bool {
	return n.owner != nil && n.owner.jobs && n.owner.serves(n.job)
}

// enter gives a job to its pool, or the news to the pool that has it.
func (k *Desk) enter(s *space, n news, now time.Time) outcome {
	key := jobKey{host: n.job.Host, id: n.event.ID, observes: n.observes}
	holder := s.holder(key)
	if n.isOwned() && n.owner != holder { // it is the pool's whose runner has it, wherever it was expected
		if holder != nil {
			k.enterAt(holder, n.event, now)
		}
		holder = n.owner
	}
	if n.event.State == reservation.Elsewhere && (n.observes || n.isOwned()) {
		n.event.State = reservation.Running
	}
	if holder == nil {
		holder = k.winner(s.class(n.observes), n.job)
	}
	if holder == nil {
		s.leave(key, n, now)
		return unmatched
	}
	if !k.enterAt(holder, n.event, now) {
		return known
	}
	s.held[key] = holder
	if n.ended != nil {
		holder.tallyJob(n.ended)
	}
	return taken
}

// enterAt enters news of a job at a pool, which is woken if it then needs another number of runners.
func (k *Desk) enterAt(p *pool, e reservation.Event, now time.Time) bool {
	before := p.ledger.Counts()
	if !p.ledger.Take(e, now) {
		if p.ledger.Counts().Dropped > before.Dropped {
			k.suspect(p, e.Repository)
		}
		return false
	}
	k.changed(p, now)
	if p.ledger.Counts().Jobs() != before.Jobs() || before.Queued != p.ledger.Counts().Queued {
		k.wake(p, now)
	}
	return true
}

// winner is the pool that a job is for; nil if none is.
func (k *Desk) winner(c *class, job jobmatch.Job) *pool {
	i := jobmatch.Winner(job, c.matches, func(i int) jobmatch.Visibility { return k.visible(c.pools[i], job.Repository) })
	if i < 0 {
		return nil
	}
	return c.pools[i]
}

// takeSlack has an event count for all triggers that it fits.
func (k *Desk) takeSlack(c *connection, d webhook.Delivery) outcome {
	now, result := k.Now(), irrelevant
	job := c.jobOf(d)
	if !c.hears(job) {
		return foreign
	}
	for _, s := range k.spacesOf(d.Connection.Namespace) {
		for _, p := range s.members {
			if p.serves(job) {
				result = min(result, k.slacken(p, d, job, now))
			}
		}
	}
	return result
}

// slacken has an event count for the triggers of a pool that it fits.
func (k *Desk) slacken(p *pool, d webhook.Delivery, job jobmatch.Job, now time.Time) outcome {
	result := irrelevant
	for i := range p.triggers {
		t := &p.triggers[i]
		if !fits(t, d) || k.visible(p, job.Repository) == jobmatch.Hidden {
			continue
		}
		result = min(result, known)
		if p.slack.Take(t.Name, cmp.Or(d.Identity, d.GUID), slackFrom(d).Add(t.GetDuration()), now) {
			result = taken
			k.changed(p, now)
			k.wake(p, now)
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

// fits says whether an event is one that a trigger waits for.
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
