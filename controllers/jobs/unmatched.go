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
	// maxUnmatched is the maximum number of jobs without a pool that one space remembers.
	maxUnmatched = 2_048
	// UnmatchedMemory limits the memory for these jobs in all namespaces together, and unmatchedEach in one namespace, both
	// in bytes. A job with a hundred labels takes 30 kB.
	UnmatchedMemory, unmatchedEach = 32 << 20, 4 << 20
	// unmatchedSize is the approximate size of such a job without its strings.
	unmatchedSize = 512
)

// unmatchedJob is a waiting job without a pool. This process remembers it, because a user who creates or fixes a pool a
// minute after the jobs were queued expects the pool to get them.
type unmatchedJob struct {
	update update
	at     time.Time
	size   int64
}

// unmatchedOf returns an update in the form in which it is remembered. From the event's data about the job, it keeps only
// the fields that the metrics of jobs need.
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

// keepUnmatched remembers a waiting job without a pool.
func (s *space) keepUnmatched(u update, now time.Time) {
	key := u.key()
	if u.observes {
		return // the update for active pools is kept, and placeUnmatched offers it to observing pools too
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

// beginUnmatched starts with no remembered jobs: in a new space, or after other namespaces needed the memory.
func (s *space) beginUnmatched() {
	s.unmatched, s.remembered = map[jobKey]unmatchedJob{}, 0
	s.memory = s.tracker.unmatched.Hold(s.pools, func() { go s.loseUnmatched() }) // a goroutine, because a lock is held
}

// loseUnmatched forgets all remembered jobs, unless the space was dropped in the meantime.
func (s *space) loseUnmatched() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.isOver() {
		s.beginUnmatched()
	}
}

// isHosted reports whether a job requests no labels, or a label of GitHub's own runners. Such jobs are not remembered,
// because there may be any number of them:
// https://docs.github.com/actions/reference/runners/github-hosted-runners
func isHosted(labels []string) bool {
	return len(labels) == 0 || slices.ContainsFunc(labels, func(l string) bool {
		l = strings.ToLower(l)
		return strings.HasPrefix(l, "ubuntu-") || strings.HasPrefix(l, "windows-") || strings.HasPrefix(l, "macos-")
	})
}

// forgetUnmatched drops jobs that have been remembered for DefaultHoldFor.
func (s *space) forgetUnmatched(now time.Time) {
	for key, u := range s.unmatched {
		if now.Sub(u.at) >= v1alpha1.DefaultHoldFor {
			s.removeUnmatched(key)
		}
	}
}

// reconcileUnmatched assigns remembered jobs to the pools that now match them. It compares only the pools that changed, and
// only with jobs that request their labels.
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

// toPlace returns the jobs that wait for a pool, and the pools that changed since the previous call.
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

// placeUnmatched assigns a job, if it still waits, to one of the matching pools.
func (s *space) placeUnmatched(key jobKey, fits map[*candidate]bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if j, waits := s.unmatched[key]; waits {
		s.enter(j.update.observed(), fits, now)
		s.enter(j.update, fits, now)
	}
}
