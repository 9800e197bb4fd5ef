// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/localcluster/nodeplay"
)

// excess is how long a pool may have more live Runners than its max: that a Runner failed is written a while after another took its place.
const excess = 30 * time.Second

// attempts is what the Runners of the pools show about how often, and how many at once, the controller makes them.
type attempts struct {
	mu    sync.Mutex
	pools map[string]*tried
}

// tried is about one pool.
type tried struct {
	names  map[string]bool // of all its Runners
	live   map[string]bool // of those that are neither over nor being ended
	over   time.Time       // since when too many are live; zero while they aren't
	longOn time.Duration   // for how long at most too many were live
	causes map[v1alpha1.RunnerCause]string
	struck map[nodeplay.FaultKind]int // pods
}

func (a *attempts) of(pool string) *tried {
	if a.pools == nil {
		a.pools = map[string]*tried{}
	}
	if a.pools[pool] == nil {
		a.pools[pool] = &tried{
			names: map[string]bool{}, live: map[string]bool{}, causes: map[v1alpha1.RunnerCause]string{}, struck: map[nodeplay.FaultKind]int{},
		}
	}
	return a.pools[pool]
}

// see takes in a Runner as a watch shows it.
func (a *attempts) see(r *v1alpha1.Runner, gone bool, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.of(r.Spec.PoolRef.Name)
	t.names[r.Name] = true
	isOver := r.Status.State == v1alpha1.RunnerFailed || r.Status.State == v1alpha1.RunnerFinished
	if delete(t.live, r.Name); !gone && !isOver && r.DeletionTimestamp.IsZero() {
		t.live[r.Name] = true
	}
	if r.Status.State == v1alpha1.RunnerFailed && r.Status.Cause != "" {
		t.causes[r.Status.Cause] = r.Name + ": " + r.Status.Reason
	}
	switch {
	case len(t.live) <= most:
		t.over = time.Time{}
	case t.over.IsZero():
		t.over = now
	default:
		t.longOn = max(t.longOn, now.Sub(t.over))
	}
}

// strike takes in that a fault struck a pod of a pool.
func (a *attempts) strike(pool string, kind nodeplay.FaultKind) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.of(pool).struck[kind]++
}

// origins are the faults of pods that alone lead to a cause. Other causes may come from GitHub, the API server or a slow machine.
var origins = map[v1alpha1.RunnerCause][]nodeplay.FaultKind{
	v1alpha1.CauseImagePull: {nodeplay.ImageRefused},
	v1alpha1.CauseRemoved:   {nodeplay.Evicted, nodeplay.NodeLost},
	v1alpha1.CauseConfig:    nil,
	v1alpha1.CauseOutdated:  nil,
	v1alpha1.CauseRefused:   nil,
}

// attempted checks that no pool tried too often, had too many runners, or named a cause that was not there.
func (s *storm) attempted() {
	s.Helper()
	jobs := map[string]int{}
	for _, j := range s.schedule.arrivals {
		jobs[j.job.Labels[0]]++
	}
	s.attempts.mu.Lock()
	defer s.attempts.mu.Unlock()
	for pool, t := range s.attempts.pools {
		strikes := 0
		for _, n := range t.struck {
			strikes += n
		}
		if n, needed := len(t.names), jobs[pool]+most+strikes; n > 2*needed+retries*s.storms {
			s.complain("%s made %d runners; it had %d jobs, and %d of its pods were struck", pool, n, jobs[pool], strikes)
		}
		if t.longOn > excess && !strings.HasPrefix(pool, staying) {
			s.complain("%s had more than %d live runners for %s", pool, most, t.longOn)
		}
		for cause, runner := range t.causes {
			kinds, isKnown := origins[cause]
			if isKnown && !slices.ContainsFunc(kinds, func(k nodeplay.FaultKind) bool { return t.struck[k] > 0 }) {
				s.complain("%s: cause %s of runner %s, but only these faults struck its pods: %v", pool, cause, runner, t.struck)
			}
		}
	}
}
