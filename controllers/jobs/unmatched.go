// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/reservation"
	"github.com/corral-dev/corral/internal/webhook"
)

const (
	// maxUnmatched is how many jobs of a namespace are remembered that no pool is for.
	maxUnmatched = 2_048
	// UnmatchedMemory is how many bytes such jobs take in all namespaces, and unmatchedEach in one: with a hundred labels a job takes 30 kB.
	UnmatchedMemory, unmatchedEach = 32 << 20, 4 << 20
	// unmatchedSize is what such a job takes beside its texts, about.
	unmatchedSize = 512
)

// unmatchedJob is a job that waits and that no pool is for, as long as this process lives: who makes a pool, or mends one, a minute
// after its jobs were queued expects it to have them.
type unmatchedJob struct {
	update update
	at     time.Time
	size   int64
}

// unmatchedOf returns what is remembered of an update: of what the event tells only what is measured.
func unmatchedOf(u update, at time.Time) unmatchedJob {
	size := unmatchedSize + len(u.job.Repository) + len(u.job.Enterprise)
	for _, label := range u.job.Labels {
		size += len(label) + 16
	}
	if u.news != nil {
		u.news = &webhook.WorkflowJob{ID: u.news.ID, Workflow: u.news.Workflow, CreatedAt: u.news.CreatedAt}
		size += len(u.news.Workflow)
	}
	return unmatchedJob{update: u, at: at, size: int64(size)}
}

// keepUnmatched remembers a job that no pool is for while it waits.
func (s *space) keepUnmatched(u update, now time.Time) {
	key := u.key()
	if u.observes {
		return // those who observe are asked with the others
	}
	if u.event.State > reservation.Queued || isHosted(u.job.Labels) {
		s.removeUnmatched(key)
		return
	}
	if len(s.unmatched) >= maxUnmatched {
		s.forgetUnmatched(now)
	}
	if before, known := s.unmatched[key]; len(s.unmatched) < maxUnmatched && before.update.event.State < u.event.State {
		if known {
			now = before.at
		}
		s.removeUnmatched(key)
		if next := unmatchedOf(u, now); s.remembered+next.size <= unmatchedEach && s.memory.Add(next.size) {
			s.remembered += next.size
			s.unmatched[key] = next
		}
	}
}

// removeUnmatched forgets a job, if it is remembered.
func (s *space) removeUnmatched(key jobKey) {
	size := s.unmatched[key].size
	delete(s.unmatched, key)
	s.remembered -= size
	s.memory.Add(-size)
}

// beginUnmatched remembers no job that waits for a pool, from the beginning or because other namespaces need the room.
func (s *space) beginUnmatched() {
	s.unmatched, s.remembered = map[jobKey]unmatchedJob{}, 0
	s.memory = s.tracker.unmatched.Hold(s.pools, func() { go s.loseUnmatched() }) // it is called under a lock
}

// loseUnmatched forgets the jobs, unless the space was dropped meanwhile.
func (s *space) loseUnmatched() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isOver() {
		s.beginUnmatched()
	}
}

// isHosted reports whether a job asks for one of GitHub's own runners, of which there may be any number:
// https://docs.github.com/actions/reference/runners/github-hosted-runners
func isHosted(labels []string) bool {
	return len(labels) == 0 || slices.ContainsFunc(labels, func(l string) bool {
		l = strings.ToLower(l)
		return strings.HasPrefix(l, "ubuntu-") || strings.HasPrefix(l, "windows-") || strings.HasPrefix(l, "macos-")
	})
}

// forgetUnmatched forgets jobs that were not heard of for as long as one counts.
func (s *space) forgetUnmatched(now time.Time) {
	for key, u := range s.unmatched {
		if now.Sub(u.at) >= v1alpha1.DefaultHoldFor {
			s.removeUnmatched(key)
		}
	}
}

// reconcileUnmatched gives the jobs that no pool was for to the pools that they are for by now. Only the pools that changed are compared, and only
// with the jobs that ask for their labels.
func (k *JobTracker) reconcileUnmatched(_ context.Context, s *space) (reconcile.Result, error) {
	waiting, changed := s.toPlace(k.Now())
	for _, u := range waiting {
		fits := map[*candidate]bool{}
		bearing := slices.DeleteFunc(slices.Clone(changed), func(c *candidate) bool { return !c.match.Has(u.job.Labels) })
		s.compare(math.MaxInt32, bearing, jobWork(u.job), func(c *candidate) {
			if c.covers(u.job) {
				fits[c] = true
			}
		})
		if len(fits) > 0 {
			s.placeUnmatched(u.key(), fits, k.Now())
		}
	}
	return reconcile.Result{}, nil
}

// toPlace returns the jobs that wait for a pool, and the pools that changed since it was last called.
func (s *space) toPlace(now time.Time) (waiting []update, changed []*candidate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgetUnmatched(now)
	for p := range s.changed {
		changed = append(changed, p.now)
	}
	clear(s.changed)
	for _, j := range s.unmatched {
		waiting = append(waiting, j.update)
	}
	return waiting, changed
}

// placeUnmatched gives a job, if it still waits, to one of the pools that it fits.
func (s *space) placeUnmatched(key jobKey, fits map[*candidate]bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j, waits := s.unmatched[key]; waits {
		s.enter(j.update.observed(), fits, now)
		s.enter(j.update, fits, now)
	}
}
