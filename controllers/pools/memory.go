// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/runners"
	"github.com/corral-dev/corral/internal/demand"
	"github.com/corral-dev/corral/internal/podspec"
)

// askAfter is how long the cache may take to show a created runner before the API server is asked whether it exists.
const askAfter = 10 * time.Second

// memory holds the state that this process has for its pools.
type memory struct {
	mu    sync.Mutex
	pools map[types.NamespacedName]poolMemory
}

// poolMemory is the state of one pool between passes. A pass reads it once and commits it once; its maps are replaced, not
// changed.
//
// All of it is lost with the process and then rebuilt. Corral tries to create runners that the cache does not show yet
// again under the same names, which the API server refuses. It tries the template again, and reads policies without the
// cache. It continues to count failures from status.health, but canaries start over, and so does the idle timeout of warm
// capacity. The scaling behavior starts from the last decision in the status.
type poolMemory struct {
	expectations *expectations
	history      *history
	// template identifies the last accepted template, by its revision, its digest and the connection's network settings.
	template string
	// hiddenRevisions are revision names that are taken by objects which the cache does not show.
	hiddenRevisions []string
	// limits are the last decided limits; nil before the first decision of this process.
	limits *v1alpha1.DecidedLimits
	// loadingSince is since when policies that may bind the pool have been loading; zero if all are loaded.
	loadingSince time.Time
	// policiesRead is true once policies were read without the cache, which may not show them yet.
	policiesRead bool
	health       healthMemory
	// trial has the runners with which a new template is tried.
	trial trial
	// phase identifies the update phase that was last reported in an event.
	phase string
	// planned is what the pool's schedules declare.
	planned plannedScale
	// lastJob is when the pool last had a job.
	lastJob time.Time
	// budgets are the foreign disruption budgets that select the pool's pods.
	budgets string
	pacing  pacing
	trouble trouble
	held    holding
}

// pacing is the state of the pool's scaling behavior.
type pacing struct {
	isOn bool
	// history records the numbers that were wanted before behavior limited them, and desired is the last number that behavior
	// allowed.
	history demand.History
	desired int32
}

// of returns the memory of a pool, for the one worker that reconciles the pool.
func (m *memory) of(pool types.NamespacedName) poolMemory {
	m.mu.Lock()
	defer m.mu.Unlock()
	known, ok := m.pools[pool]
	if !ok { // known from now on, because runners may be deleted before the first pass commits
		known = poolMemory{expectations: &expectations{created: map[string]*v1alpha1.Runner{}}, history: &history{}}
		m.put(pool, known)
	}
	return known
}

// put replaces the memory of a pool. The caller holds the lock.
func (m *memory) put(pool types.NamespacedName, now poolMemory) {
	if m.pools == nil {
		m.pools = map[types.NamespacedName]poolMemory{}
	}
	m.pools[pool] = now
}

// gone stops expecting a runner that was deleted.
func (m *memory) gone(pool types.NamespacedName, runner string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if known, ok := m.pools[pool]; ok {
		known.expectations.forget(runner)
	}
}

// commit replaces the memory of a pool.
func (m *memory) commit(pool types.NamespacedName, now poolMemory) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.put(pool, now)
}

// drop forgets a pool, and reports whether it was known.
func (m *memory) drop(pool types.NamespacedName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, known := m.pools[pool]
	delete(m.pools, pool)
	return known
}

// expectations has the runners that this process created and the cache may not show yet. Without it, a pass on a stale
// cache would create them again. An expectation never expires: only the cache or the API server ends it.
type expectations struct {
	mu      sync.Mutex
	created map[string]*v1alpha1.Runner
	asked   time.Time // when the API server was last asked
	// last is the highest number given to a runner, and leap is how many numbers are skipped when the next name is taken.
	last, leap int64
}

// expect remembers a runner before it is created.
func (e *expectations) expect(r *v1alpha1.Runner) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.created[r.Name] = r
}

// forget stops expecting a runner that was not created, or is gone.
func (e *expectations) forget(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.created, name)
}

// missing returns the expected runners that shown does not contain, and forgets the others. overdue is true if the API
// server should be asked about them. The numbers of shown runners, whose names begin with stem, are not used again.
func (e *expectations) missing(stem string, shown []*v1alpha1.Runner, now time.Time) (missing []*v1alpha1.Runner, overdue bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range shown {
		delete(e.created, r.Name)
		e.last = max(e.last, podspec.NumberOf(stem, r.Name))
	}
	for _, r := range e.created {
		missing = append(missing, r)
		overdue = overdue || now.Sub(r.CreationTimestamp.Time) >= askAfter && now.Sub(e.asked) >= askAfter
	}
	return missing, overdue
}

// confirm updates the expectations with the API server's answer about the missing runners. Runners that the map there
// contains stay expected, and the others are dropped. confirm returns how many exist.
func (e *expectations) confirm(missing []*v1alpha1.Runner, there map[string]*v1alpha1.Runner, now time.Time) (confirmed int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = now
	for _, r := range missing {
		if known := there[r.Name]; known != nil {
			e.created[r.Name] = known
			confirmed++
		} else {
			delete(e.created, r.Name)
		}
	}
	return confirmed
}

// skip ensures that the number of a pod without a Runner is not used again.
func (e *expectations) skip(stem, name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last = max(e.last, podspec.NumberOf(stem, name))
}

// maxLeap limits how many numbers are skipped at once.
const maxLeap = 1 << 16

// avoid skips numbers after failures of runners whose name was already taken. Each time, it skips twice as many, because
// earlier runners may have left thousands of Secrets behind.
func (e *expectations) avoid(failures []runners.Failure) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, f := range failures {
		if f.NameTaken {
			e.last += e.leap
			e.leap = min(maxLeap, max(1, 2*e.leap))
		}
	}
}

// issued returns the highest number given to a runner.
func (e *expectations) issued() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.last
}

// next returns the next runner's number.
func (e *expectations) next() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last++
	return e.last
}
