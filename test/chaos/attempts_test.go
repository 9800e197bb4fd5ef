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

// maxExcess is how long a pool may show more live Runners than its max. The status of a failed Runner is written after its replacement exists.
const maxExcess = 30 * time.Second

// attempts records how many Runners the controller creates for each pool, in total and at once.
type attempts struct {
	mu    sync.Mutex
	pools map[string]*poolAttempts
}

// poolAttempts is the record of one pool.
type poolAttempts struct {
	names   map[string]bool // all its Runners
	live    map[string]bool // its Runners that have not ended and are not being deleted
	over    time.Time       // when the pool began to have too many live Runners; zero if it has not
	longest time.Duration   // the longest time with too many live Runners
	causes  map[v1alpha1.RunnerCause]string
	struck  map[nodeplay.FaultKind]int // number of pods
}

func (a *attempts) of(pool string) *poolAttempts {
	if a.pools == nil {
		a.pools = map[string]*poolAttempts{}
	}
	if a.pools[pool] == nil {
		a.pools[pool] = &poolAttempts{
			names: map[string]bool{}, live: map[string]bool{}, causes: map[v1alpha1.RunnerCause]string{}, struck: map[nodeplay.FaultKind]int{},
		}
	}
	return a.pools[pool]
}

// see records the state of a Runner that a watch delivers.
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
	case len(t.live) <= maxRunners:
		t.over = time.Time{}
	case t.over.IsZero():
		t.over = now
	default:
		t.longest = max(t.longest, now.Sub(t.over))
	}
}

// strike records that a fault hit a pod of a pool.
func (a *attempts) strike(pool string, kind nodeplay.FaultKind) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.of(pool).struck[kind]++
}

// origins lists the only pod faults that may lead to a cause. The causes that it does not list may also come from GitHub, the API server or a slow
// machine.
var origins = map[v1alpha1.RunnerCause][]nodeplay.FaultKind{
	v1alpha1.CauseImagePull: {nodeplay.ImageRefused},
	v1alpha1.CauseRemoved:   {nodeplay.Evicted, nodeplay.NodeLost},
	v1alpha1.CauseConfig:    nil,
	v1alpha1.CauseOutdated:  nil,
	v1alpha1.CauseRefused:   nil,
}

// attempted checks that no pool created too many runners, had too many at once, or reported a cause that no fault explains.
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
		if n, needed := len(t.names), jobs[pool]+maxRunners+strikes; n > 2*needed+spareAttempts*s.storms {
			s.complain("%s made %d runners; it had %d jobs, and %d of its pods were struck", pool, n, jobs[pool], strikes)
		}
		if t.longest > maxExcess && !strings.HasPrefix(pool, staying) {
			s.complain("%s had more than %d live runners for %s", pool, maxRunners, t.longest)
		}
		for cause, runner := range t.causes {
			kinds, isKnown := origins[cause]
			if isKnown && !slices.ContainsFunc(kinds, func(k nodeplay.FaultKind) bool { return t.struck[k] > 0 }) {
				s.complain("%s: cause %s of runner %s, but only these faults struck its pods: %v", pool, cause, runner, t.struck)
			}
		}
	}
}
