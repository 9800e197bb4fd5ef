// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/jobmatch"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/reservation"
)

// Jobs that wait for long without news are compared with what GitHub lists, one repository after the other. Repositories whose
// jobs have news cost nothing.
const (
	// compareInterval is the time between two such looks of a connection, of compareMost repositories each.
	compareInterval, compareMost = 30 * time.Second, 5
	// suspectMost is how many of them may be suspects, so that others have their turn; suspectTries is how often one is tried that is refused.
	suspectMost, suspectTries = 3, 3
	// compareAfter is how long a job waits without news before it is looked for, and runs before.
	compareAfter, compareRunningAfter = 5 * time.Minute, 30 * time.Minute
	// suspectAfter is when a repository is looked at whose jobs may be with the wrong pool: GitHub's lists lag behind.
	suspectAfter = reservation.Settle + 5*time.Second
	// listAge is how old a list may be, and listTimeout how long one may take: of each unfinished run, the jobs are listed.
	listAge, listTimeout = 2 * time.Minute, 3 * time.Minute
	// minRepositoryBackoff is how long a repository is left alone at first that wasn't listed in time.
	minRepositoryBackoff = time.Minute
)

// toCompare returns the repositories that are to be compared with GitHub by a connection.
func (a *account) toCompare(c *connection, now time.Time) []string {
	var list []string
	for repository, due := range c.suspects {
		if len(list) < suspectMost && !now.Before(due) && !now.Before(c.backingOff[repository].until) {
			list = append(list, repository)
			delete(c.suspects, repository)
		}
	}
	for _, p := range a.pools {
		if len(list) >= compareMost {
			break
		}
		if p.conn != c.key || !p.saved.loaded {
			continue
		}
		for _, repository := range p.ledger.Silent(now.Add(-compareAfter), now.Add(-compareRunningAfter), compareMost+len(c.backingOff)) {
			if len(list) < compareMost && !slices.Contains(list, repository) && !now.Before(c.backingOff[repository].until) {
				list = append(list, repository)
			}
		}
	}
	return list
}

// reconcileComparison makes the jobs of repositories to compare those that GitHub lists. Those that can't be listed now are tried again.
func (k *JobTracker) reconcileComparison(ctx context.Context, c *connection) (reconcile.Result, error) {
	k.mu.Lock()
	repositories := k.account.toCompare(c, k.Now())
	k.mu.Unlock()
	if len(repositories) == 0 {
		return after(compareInterval), nil
	}
	left, err := repositories, errNotReady
	if gh, ok := k.GitHub(c.key); ok {
		left, err = k.compareAll(ctx, gh, c, repositories)
	}
	k.mu.Lock()
	for _, repository := range left {
		c.suspect(repository, k.Now())
	}
	k.mu.Unlock()
	wait, _ := github.IsRateLimited(err)
	if err != nil && ctx.Err() == nil && !errors.Is(err, errNotReady) {
		kube.Warn(ctx, "Waiting jobs can't be compared with GitHub", "error", err.Error())
	}
	return after(max(wait, compareInterval)), nil
}

// compareAll compares each, also when one can't be, unless GitHub asks for less. It returns which are left.
func (k *JobTracker) compareAll(ctx context.Context, gh GitHub, c *connection, repositories []string) (left []string, err error) {
	var last error
	for i, repository := range repositories {
		list, err := k.list(ctx, gh, repository)
		if err == nil {
			k.reconcile(ctx, c, repository, list)
			k.backOff(c, repository, nil)
			compared.Inc()
			continue
		}
		last = err
		if _, limited := github.IsRateLimited(err); limited || ctx.Err() != nil {
			return append(left, repositories[i:]...), err
		}
		if again := k.backOff(c, repository, err); again {
			left = append(left, repository)
		}
	}
	return left, last
}

// backingOff is a repository that is not listed until a time, after failures.
type backingOff struct {
	until  time.Time
	failed int
}

// backOff leaves a repository alone for a while that can't be listed, and longer each time. It keeps its jobs: GitHub also says "not found" of
// what one may not see. It returns whether a suspect is to be tried again.
func (k *JobTracker) backOff(c *connection, repository string, err error) (again bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil {
		delete(c.backingOff, repository)
		return false
	}
	if len(c.backingOff) >= maxSuspects {
		clear(c.backingOff)
	}
	s := c.backingOff[repository]
	s.failed++
	wait := hopeless
	_, away := github.ComeBack(err)
	if away {
		wait = min(minRepositoryBackoff<<min(s.failed-1, 8), hopeless)
	}
	s.until = k.Now().Add(wait)
	c.backingOff[repository] = s
	return away || s.failed < suspectTries
}

func (k *JobTracker) list(ctx context.Context, gh GitHub, repository string) (rest.JobList, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	list, err := gh.Jobs(ctx, repository, listAge)
	if err != nil {
		return list, fmt.Errorf("listing jobs of %s: %w", repository, err)
	}
	return list, nil
}

// reconcile gives each job of a list to its pool, and ends those that are not in it.
func (k *JobTracker) reconcile(ctx context.Context, c *connection, repository string, list rest.JobList) {
	of, namespaces := map[int64]owners{}, k.namespacesOn(c.key.Namespace)
	for i := range list.Jobs {
		if j := &list.Jobs[i]; j.RunnerName != "" {
			of[j.ID] = k.poolsOf(ctx, namespaces, j.RunnerName, j.RunnerID)
		}
	}
	k.update(func(a *account, now time.Time) changes { return a.reconcile(c, repository, list, of, now) })
}

// reconcile gives the jobs of a list to the pools on connections of a namespace; owners are by the jobs' ids.
func (a *account) reconcile(c *connection, repository string, list rest.JobList, of map[int64]owners, now time.Time) changes {
	for _, s := range a.spacesOf(c.key.Namespace) {
		for _, observes := range []bool{false, true} {
			shares := map[*pool][]reservation.Event{}
			for i := range list.Jobs {
				u := c.updateOf(repository, &list.Jobs[i])
				if u.owner = of[u.event.ID].in(s, a.pools); observes {
					u = u.observed()
				}
				if p, e := a.assign(s, u, now); p != nil {
					shares[p] = append(shares[p], e)
					p.measure(a.meter, newsOfList(repository, &list.Jobs[i], e.State), p.ledger.Has(e.ID))
				}
			}
			for _, p := range s.class(observes).pools {
				if p.match.Scope.Host == c.scope.Host {
					a.reconcileAt(s, p, reservation.Truth{Repository: repository, Began: list.At, Jobs: shares[p], Partial: !list.Complete}, now)
				}
			}
		}
	}
	return a.flush()
}

// updateOf is what a list says of a job.
func (c *connection) updateOf(repository string, j *rest.Job) update {
	job := jobmatch.Job{Host: c.scope.Host, Repository: repository, Labels: j.Labels}
	if c.scope.Kind == jobmatch.Enterprise {
		job.Enterprise = c.scope.Path
	}
	return update{job: job, event: reservation.Event{ID: j.ID, State: stateOf("", j.Status), Repository: repository, Runner: j.RunnerName}}
}

// assign returns the pool that a listed job is for, and the event that is to be entered there. A job that waits goes to the pool that it is
// for by what is known now, wherever it was before.
func (a *account) assign(s *space, u update, now time.Time) (*pool, reservation.Event) {
	holder := s.holder(u.key())
	switch {
	case u.event.State == 0 || u.event.State == reservation.Done:
		return nil, u.event
	case u.event.State == reservation.Elsewhere && u.observes:
		u.event.State = reservation.Running
	case u.event.State == reservation.Elsewhere && u.isOwned():
		u.event.State = reservation.Running
		return a.move(s, u, holder, u.owner, now), u.event
	case u.event.State == reservation.Elsewhere:
		return holder, u.event
	}
	if holder != nil && holder.ledger.Has(u.event.ID) > reservation.Queued {
		return holder, u.event // the list lags behind
	}
	p := a.winner(s.class(u.observes), u.job, now)
	if p == nil {
		p = holder
	}
	return a.move(s, u, holder, p, now), u.event
}

// move hands a job from the pool that has it to another.
func (a *account) move(s *space, u update, from, to *pool, now time.Time) *pool {
	if from != nil && from != to {
		a.dropJob(from, u.event.ID, now)
	}
	if to != nil {
		s.hold(u.key(), to)
	}
	return to
}

// reconcileAt makes a repository's jobs of a pool those that GitHub lists.
func (a *account) reconcileAt(s *space, p *pool, t reservation.Truth, now time.Time) {
	before := p.ledger.Counts()
	changed := p.ledger.Reconcile(t, now)
	a.noteCounts(p, before, changed, t.Repository, now)
	if !changed {
		return
	}
	for _, e := range t.Jobs {
		s.hold(s.keyOf(p, e.ID), p)
	}
}
