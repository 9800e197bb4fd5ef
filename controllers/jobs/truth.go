// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/jobmatch"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/reservation"
	"github.com/corral-dev/corral/internal/webhook"
)

// The JobTracker compares jobs that had no event for a long time with GitHub's lists, one repository after the other.
// Repositories whose jobs have recent events need no request.
const (
	// compareInterval is the interval between two comparisons of a connection, and compareMost is the maximum number of
	// repositories in one comparison.
	compareInterval, compareMost = 30 * time.Second, 5
	// suspectMost is how many of these repositories may be suspects, so that the others have their turn. suspectTries is how
	// often Corral tries to list a suspect for which GitHub refuses the request.
	suspectMost, suspectTries = 3, 3
	// compareAfter is how long a waiting job must have had no event before it is compared, and compareRunningAfter is the
	// same for a running job.
	compareAfter, compareRunningAfter = 5 * time.Minute, 30 * time.Minute
	// suspectAfter is the delay before a suspect is compared, because GitHub's lists lag behind.
	suspectAfter = reservation.Settle + 5*time.Second
	// listAge is the maximum age of a list, and listTimeout is the maximum duration of a listing. A listing needs requests
	// for each unfinished run.
	listAge, listTimeout = 2 * time.Minute, 3 * time.Minute
	// minRepositoryBackoff is the first back-off for a repository that was not listed because GitHub was unavailable.
	minRepositoryBackoff = time.Minute
)

// toCompare returns the repositories to compare with GitHub through a connection, each with the space that requests the
// comparison. It visits the spaces in random order, so that the pools of each namespace have their turn.
func (k *JobTracker) toCompare(c *connection) map[string]*space {
	now, spaces, due := k.Now(), k.spacesOf(c.key.Namespace), map[string]*space{}
	rand.Shuffle(len(spaces), func(i, j int) { spaces[i], spaces[j] = spaces[j], spaces[i] })
	add := func(s *space, most int, repository string) bool {
		waits := due[repository] != nil || len(due) >= most
		c.do(func() { waits = waits || now.Before(c.backingOff[repository].until) })
		if !waits {
			due[repository] = s
		}
		return !waits
	}
	for _, s := range spaces {
		s.mu.Lock()
		maps.DeleteFunc(s.suspects, func(r suspect, at time.Time) bool {
			return r.conn == c.key && !now.Before(at) && add(s, suspectMost, r.repository)
		})
		s.mu.Unlock()
	}
	for _, s := range spaces {
		s.mu.Lock()
		for _, p := range s.members {
			if p.conn != c.key || !p.saved.loaded || len(due) >= compareMost {
				continue
			}
			for _, repository := range p.ledger.Silent(now.Add(-compareAfter), now.Add(-compareRunningAfter), compareMost+maxSuspects) {
				add(s, compareMost, repository)
			}
		}
		s.mu.Unlock()
	}
	return due
}

// reconcileComparison updates the jobs of repositories from GitHub's lists. Repositories that cannot be listed now become
// suspects, and are compared again later.
func (k *JobTracker) reconcileComparison(ctx context.Context, c *connection) (reconcile.Result, error) {
	due := k.toCompare(c)
	if len(due) == 0 {
		return after(compareInterval), nil
	}
	left, err := slices.Sorted(maps.Keys(due)), errNotReady
	if gh, ok := k.GitHub(c.key); ok {
		left, err = k.compareAll(ctx, gh, c, left)
	}
	for _, repository := range left {
		due[repository].mu.Lock()
		due[repository].suspect(suspect{c.key, repository}, k.Now())
		due[repository].mu.Unlock()
	}
	wait, _ := github.IsRateLimited(err)
	if err != nil && ctx.Err() == nil && !errors.Is(err, errNotReady) {
		kube.Warn(ctx, "Waiting jobs can't be compared with GitHub", "error", err.Error())
	}
	return after(max(wait, compareInterval)), nil
}

// compareAll compares each repository, even if another one fails, but stops if GitHub asks for fewer requests. It returns
// the repositories to try again.
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

// backingOff is the back-off of a repository after failures.
type backingOff struct {
	until  time.Time
	failed int
}

// backOff postpones the next comparison of a repository that cannot be listed. While GitHub is unavailable, the delay
// doubles. The jobs of the repository are kept, because GitHub also answers "not found" for repositories that the connection
// may not see. backOff reports whether the repository should be tried again as a suspect. If err is nil, it ends the
// back-off.
func (k *JobTracker) backOff(c *connection, repository string, err error) (again bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
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

// reconcile assigns each job of a list to a pool, and removes the repository's jobs that are not in the list.
func (k *JobTracker) reconcile(ctx context.Context, c *connection, repository string, list rest.JobList) {
	of, spaces := map[int64]owners{}, k.spacesOf(c.key.Namespace)
	for i := range list.Jobs {
		if j := &list.Jobs[i]; j.RunnerName != "" {
			of[j.ID] = k.poolsOf(ctx, spaces, j.RunnerName, j.RunnerID)
		}
	}
	c.mu.Lock()
	about := jobIn(c.scope, repository)
	c.mu.Unlock()
	for _, s := range spaces {
		covers, _ := settle(s, math.MaxInt32, func() candidates { return s.index[asked{event: webhook.WorkflowJobEvent}] }, jobWork(about), func(c *candidate) bool { return c.covers(about) })
		s.reconcile(about, list, of, covers, k.Now())
		s.mu.Unlock()
	}
}

// reconcile assigns the jobs of a repository's list to the pools whose patterns match it. of maps the ID of a job to the
// pools of the Runner that has it.
func (s *space) reconcile(about jobmatch.Job, list rest.JobList, of map[int64]owners, covers map[*candidate]bool, now time.Time) {
	for _, observes := range []bool{false, true} {
		shares := map[*pool][]reservation.Event{}
		for i := range list.Jobs {
			u := updateOf(about, &list.Jobs[i])
			if u.owner = of[u.event.ID].in(s); observes {
				u = u.observed()
			}
			if p, e := s.assign(u, covers, now); p != nil {
				shares[p] = append(shares[p], e)
				p.measure(s.tracker.Meter, newsOfList(about.Repository, &list.Jobs[i], e.State), p.ledger.Has(e.ID))
			}
		}
		for c := range s.index[asked{event: webhook.WorkflowJobEvent}] {
			if c.observes == observes && c.match.Scope.Host == about.Host {
				s.reconcileAt(c.pool, reservation.Truth{Repository: about.Repository, Began: list.At, Jobs: shares[c.pool], Partial: !list.Complete}, now)
			}
		}
	}
}

// jobIn returns a job of a repository in a scope, without labels.
func jobIn(scope jobmatch.Scope, repository string) jobmatch.Job {
	job := jobmatch.Job{Host: scope.Host, Repository: repository}
	if scope.Kind == jobmatch.Enterprise {
		job.Enterprise = scope.Path
	}
	return job
}

// updateOf converts a listed job to an update.
func updateOf(about jobmatch.Job, j *rest.Job) update {
	about.Labels = jobmatch.Labels(j.Labels)
	return update{job: about, event: reservation.Event{ID: j.ID, State: stateOf("", j.Status), Repository: about.Repository, Runner: j.RunnerName}}
}

// assign returns the pool that should get a listed job, or nil, and the event to record there. A waiting job goes to the
// pool that matches best now, whichever pool had it before.
func (s *space) assign(u update, covers map[*candidate]bool, now time.Time) (*pool, reservation.Event) {
	holder := s.holder(u.key())
	switch {
	case u.event.State == 0 || u.event.State == reservation.Done:
		return nil, u.event
	case u.event.State == reservation.Elsewhere && u.observes:
		u.event.State = reservation.Running
	case u.event.State == reservation.Elsewhere && u.isOwned():
		u.event.State = reservation.Running
		return s.move(u, holder, u.owner, now), u.event
	case u.event.State == reservation.Elsewhere:
		return holder, u.event
	}
	if holder != nil && holder.ledger.Has(u.event.ID) > reservation.Queued {
		return holder, u.event // the list lags behind
	}
	p := s.winner(u, covers, now)
	if p == nil {
		p = holder
	}
	return s.move(u, holder, p, now), u.event
}

// move moves a job from the pool that has it to another pool, which it returns. Both may be nil.
func (s *space) move(u update, from, to *pool, now time.Time) *pool {
	if from != nil && from != to {
		s.dropJob(from, u.event.ID, now)
	}
	if to != nil {
		s.hold(u.key(), to)
	}
	return to
}

// reconcileAt updates a pool's jobs of a repository from GitHub's list.
func (s *space) reconcileAt(p *pool, t reservation.Truth, now time.Time) {
	before := p.ledger.Counts()
	t.Jobs = s.fitting(p, t.Jobs)
	changed := p.ledger.Reconcile(t, now)
	s.noteCounts(p, before, changed, t.Repository, now)
	if !changed {
		return
	}
	for _, e := range t.Jobs {
		s.hold(p.jobKey(e.ID), p)
	}
}
