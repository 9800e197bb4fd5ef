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

// askAfter is how long the cache may take to show a runner that was created, before the API server is asked whether it is there.
const askAfter = 10 * time.Second

// memory holds what this process remembers of its pools.
type memory struct {
	mu    sync.Mutex
	pools map[types.NamespacedName]poolMemory
}

// poolMemory is what one process remembers of one pool between passes. A pass reads it once and commits it once; its
// maps are replaced, not changed.
//
// All of it is lost with the process, and rebuilt: runners that the cache does not show yet are created again under the same
// names, which the API server refuses; the template is tried again; policies are read without the cache; failures are counted on from
// the condition Healthy, and other canaries are tried; warm capacity and behavior begin anew at the last decision in status.
type poolMemory struct {
	expectations *expectations
	history      *history
	// template is the revision that was accepted last, and the digest of its template.
	template string
	// hiddenRevisions are names that revisions can't have, as the cache doesn't show who has them.
	hiddenRevisions []string
	// limits are those that were decided last; nil before the first decision of this process.
	limits *v1alpha1.DecidedLimits
	// loadingSince is since when policies are loaded that may bind the pool; zero if they are there.
	loadingSince time.Time
	// policiesRead is true once policies were read without the cache, which may not show them yet.
	policiesRead bool
	health       healthMemory
	// trial has the runners that a new template is tried with.
	trial trial
	// phase is the update's phase that the last event was about.
	phase string
	// lastJob is when the pool had a job last.
	lastJob time.Time
	// budgets is what is amiss with those of others.
	budgets string
	pacing  pacing
	trouble trouble
	held    holding
}

// pacing is what behavior looks back at.
type pacing struct {
	isOn bool
	// history of the numbers that were wanted, and desired is the number that behavior gave last.
	history demand.History
	desired int32
}

// of returns the memory of a pool, which is for the one worker that has the pool.
func (m *memory) of(pool types.NamespacedName) poolMemory {
	m.mu.Lock()
	defer m.mu.Unlock()
	known, ok := m.pools[pool]
	if !ok { // known from now on: runners may be gone before the first pass commits
		known = poolMemory{expectations: &expectations{created: map[string]*v1alpha1.Runner{}}, history: &history{}}
		m.put(pool, known)
	}
	return known
}

// put is for who holds the lock.
func (m *memory) put(pool types.NamespacedName, now poolMemory) {
	if m.pools == nil {
		m.pools = map[types.NamespacedName]poolMemory{}
	}
	m.pools[pool] = now
}

// gone no longer expects a runner to show.
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

// expectations are the runners that this process created and the cache may not show yet. A pass on a stale cache would create them again. Time
// alone ends none: only the cache and the API server know.
type expectations struct {
	mu      sync.Mutex
	created map[string]*v1alpha1.Runner
	asked   time.Time // when the API server was last asked
	// last is the highest number given to a runner, and leap how many are left out at the next name that is taken.
	last, leap int64
}

// expect remembers a runner before it is created.
func (e *expectations) expect(r *v1alpha1.Runner) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.created[r.Name] = r
}

// forget no longer expects a runner: it was not created, or is gone.
func (e *expectations) forget(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.created, name)
}

// missing returns the expected runners that are not among those shown, and forgets the others. Overdue is true if the API server should be asked
// about them. Numbers of those shown, whose names begin with the stem, are not given again.
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

// confirm takes in what the API server has of the missing runners: those that it has stay expected, the others are gone. It returns how many there
// are.
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

// skip has the number of a pod not be given again that is there without its runner.
func (e *expectations) skip(stem, name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last = max(e.last, podspec.NumberOf(stem, name))
}

// maxLeap bounds how many numbers are left out at once.
const maxLeap = 1 << 16

// avoid leaves numbers out, twice as many at each name that turned out to be taken: former runners may have left thousands of Secrets behind.
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
