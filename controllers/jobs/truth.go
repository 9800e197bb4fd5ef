// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/jobmatch"
	"github.com/corral-dev/corral/internal/reservation"
)

// Jobs that wait for long without news are compared with what GitHub lists, one repository after the other. Repositories that nothing
// is doubted of cost nothing.
const (
	// compareInterval is the time between two such looks of a connection, of compareMost repositories each.
	compareInterval, compareMost = 30 * time.Second, 5
	// suspectMost is how many of them may be suspects, so that others have their turn; suspectTries is how often one is tried that is refused.
	suspectMost, suspectTries = 3, 3
	// doubtAfter is how long a job waits without news before it is looked for, and runs before.
	doubtAfter, doubtRunningAfter = 5 * time.Minute, 30 * time.Minute
	// suspectAfter is when a repository is looked at whose jobs may be with the wrong pool: GitHub's lists lag behind.
	suspectAfter = reservation.Settle + 5*time.Second
	// listAge is how old a list may be, and listTimeout how long one may take: of each unfinished run, the jobs are listed.
	listAge, listTimeout = 2 * time.Minute, 3 * time.Minute
	// shunFor is how long a repository is left alone first that wasn't listed in time.
	shunFor = time.Minute
)

// doubtful returns the repositories that are to be compared with GitHub by a connection.
func (k *Desk) doubtful(c *connection, now time.Time) []string {
	var list []string
	for repository, due := range c.suspects {
		if len(list) < suspectMost && !now.Before(due) && !now.Before(c.shunned[repository].until) {
			list = append(list, repository)
			delete(c.suspects, repository)
		}
	}
	for _, p := range k.pools {
		if len(list) >= compareMost {
			break
		}
		if p.conn != c.key || !p.loaded {
			continue
		}
		for _, repository := range p.ledger.Doubtful(now.Add(-doubtAfter), now.Add(-doubtRunningAfter), compareMost+len(c.shunned)) {
			if len(list) < compareMost && !slices.Contains(list, repository) && !now.Before(c.shunned[repository].until) {
				list = append(list, repository)
			}
		}
	}
	return list
}

// compare makes the jobs of repositories those that GitHub lists. Those that can't be listed now are tried again.
func (k *Desk) compare(ctx context.Context, c *connection, repositories []string) {
	left, err := repositories, errNotReady
	if gh, ok := k.GitHub(c.key); ok {
		left, err = k.compareAll(ctx, gh, c, repositories)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now, e := k.Now(), &c.comparing
	e.busy = false
	for _, repository := range left {
		c.suspect(repository, now)
	}
	if err == nil {
		e.failed, e.trouble = 0, ""
		return
	}
	e.failed++
	if after, limited := github.IsRateLimited(err); limited {
		e.next = now.Add(jittered(max(after, backoff(e.failed), compareInterval)))
	}
	if text := github.Summary(err); ctx.Err() == nil && text != e.trouble && !errors.Is(err, errNotReady) {
		e.trouble = text
		ctrl.Log.WithName("demand").Error(err, "Waiting jobs can't be compared with GitHub", "connection", c.key)
	}
}

// compareAll compares each, also when one can't be, unless GitHub asks for less. It returns which are left.
func (k *Desk) compareAll(ctx context.Context, gh GitHub, c *connection, repositories []string) (left []string, err error) {
	var last error
	for i, repository := range repositories {
		list, err := k.list(ctx, gh, repository)
		if err == nil {
			k.reconcile(ctx, c, repository, list)
			k.shun(c, repository, nil)
			compared.Inc()
			continue
		}
		last = err
		if _, limited := github.IsRateLimited(err); limited || ctx.Err() != nil {
			return append(left, repositories[i:]...), err
		}
		if again := k.shun(c, repository, err); again {
			left = append(left, repository)
		}
	}
	return left, last
}

// shunned is a repository that is left alone.
type shunned struct {
	until  time.Time
	failed int
}

// shun leaves a repository alone for a while that can't be listed, and longer each time. It keeps its jobs: GitHub also says "not found" of
// what one may not see. It returns whether a suspect is to be tried again.
func (k *Desk) shun(c *connection, repository string, err error) (again bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil {
		delete(c.shunned, repository)
		return false
	}
	if len(c.shunned) >= maxSuspects {
		clear(c.shunned)
	}
	s := c.shunned[repository]
	s.failed++
	wait := hopeless
	_, away := github.ComeBack(err)
	if away {
		wait = min(shunFor<<min(s.failed-1, 8), hopeless)
	}
	s.until = k.Now().Add(wait)
	c.shunned[repository] = s
	return away || s.failed < suspectTries
}

func (k *Desk) list(ctx context.Context, gh GitHub, repository string) (rest.JobList, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	list, err := gh.Jobs(ctx, repository, listAge)
	if err != nil {
		return list, fmt.Errorf("listing jobs of %s: %w", repository, err)
	}
	return list, nil
}

// reconcile gives each job of a list to its pool, and ends those that are not in it.
func (k *Desk) reconcile(ctx context.Context, c *connection, repository string, list rest.JobList) {
	owners, namespaces := map[int64]runners{}, k.namespacesOn(c.key.Namespace)
	for i := range list.Jobs {
		if j := &list.Jobs[i]; j.RunnerName != "" {
			owners[j.ID] = k.poolsOf(ctx, namespaces, j.RunnerName, j.RunnerID)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.spacesOf(c.key.Namespace) {
		k.reconcileIn(s, c, repository, list, owners)
	}
}

// reconcileIn gives the jobs of a list to the pools of a space.
func (k *Desk) reconcileIn(s *space, c *connection, repository string, list rest.JobList, owners map[int64]runners) {
	now := k.Now()
	for _, observes := range []bool{false, true} {
		shares := map[*pool][]reservation.Event{}
		for i := range list.Jobs {
			n := c.newsOf(repository, &list.Jobs[i], observes)
			if !observes {
				n.owner = owners[list.Jobs[i].ID].in(s, k.pools)
			}
			if p, e := k.claim(s, n, now); p != nil {
				shares[p] = append(shares[p], e)
			}
		}
		for _, p := range s.class(observes).pools {
			if p.match.Scope.Host == c.scope.Host {
				k.reconcileAt(s, p, reservation.Truth{Repository: repository, Began: list.At, Jobs: shares[p], Partial: !list.Complete}, now)
			}
		}
	}
}

func (c *connection) newsOf(repository string, j *rest.Job, observes bool) news {
	job := jobmatch.Job{Host: c.scope.Host, Repository: repository, Labels: j.Labels}
	if c.scope.Kind == jobmatch.Enterprise {
		job.Enterprise = c.scope.Path
	}
	return news{job: job, observes: observes, event: reservation.Event{ID: j.ID, State: stateOf("", j.Status), Repository: repository, Runner: j.RunnerName}}
}

// claim returns the pool that a listed job is for, and what that is to be told. A job that waits goes to the pool that it is for by
// what is known now, wherever it was before.
func (k *Desk) claim(s *space, n news, now time.Time) (*pool, reservation.Event) {
	key := jobKey{host: n.job.Host, id: n.event.ID, observes: n.observes}
	holder := s.holder(key)
	switch {
	case n.event.State == 0 || n.event.State == reservation.Done:
		return nil, n.event
	case n.event.State == reservation.Elsewhere && n.observes:
		n.event.State = reservation.Running
	case n.event.State == reservation.Elsewhere && n.isOwned():
		n.event.State = reservation.Running
		return k.move(s, key, holder, n.owner, now), n.event
	case n.event.State == reservation.Elsewhere:
		return holder, n.event
	}
	if holder != nil && holder.ledger.Has(key.id) > reservation.Queued {
		return holder, n.event // the list lags behind
	}
	p := k.winner(s.class(n.observes), n.job)
	if p == nil {
		p = holder
	}
	return k.move(s, key, holder, p, now), n.event
}

// move hands a job from the pool that has it to another.
func (k *Desk) move(s *space, key jobKey, from, to *pool, now time.Time) *pool {
	if from != nil && from != to {
		from.ledger.Drop(key.id)
		k.changed(from, now)
		k.wake(from, now)
	}
	if to != nil {
		s.held[key] = to
	}
	return to
}

func (k *Desk) reconcileAt(s *space, p *pool, t reservation.Truth, now time.Time) {
	before := p.ledger.Counts()
	changed := p.ledger.Reconcile(t, now)
	if p.ledger.Counts().Dropped > before.Dropped {
		k.suspect(p, t.Repository) // until there is room
	}
	if !changed {
		return
	}
	k.changed(p, now)
	if after := p.ledger.Counts(); after.Jobs() != before.Jobs() || after.Queued != before.Queued {
		k.wake(p, now)
	}
	for _, e := range t.Jobs {
		s.held[s.keyOf(p, e.ID)] = p
	}
}
