// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/demand"
	"github.com/corral-dev/corral/internal/scaling"
)

// expectationLife bounds how long a created runner is believed in although the
// cache never showed it.
const expectationLife = 30 * time.Second

// memory is what this process knows of its pools and nothing else shows yet. All of it
// can be lost: it is rebuilt from what is there.
type memory struct {
	mu    sync.Mutex
	pools map[types.NamespacedName]*recollection
}

// recollection is what is remembered of one pool.
type recollection struct {
	mu sync.Mutex
	// created has runners that the cache does not show yet. A pass on a stale cache would
	// create them again.
	created map[string]*v1alpha1.Runner
	// last is the highest number given to a runner.
	last int64
	// connected has runners that GitHub was once seen to see; of the one worker that has
	// the pool, as all that follows.
	connected map[string]bool
	// good is the revision that was found good last, and the digest of its template.
	good string
	// counts is true once GitHub counted a runner of the pool: not every server does.
	counts bool
	// limits are those that were decided last, and looked is true once policies were looked for that the
	// cache may not show yet; of the one worker that has the pool.
	limits *v1alpha1.DecidedLimits
	looked bool
	// circuits are of the revisions that runners are made from.
	circuits map[string]scaling.Circuit
	// trial is of the runners of a new template, and told is the update's phase that was told of.
	trial trial
	told  string
	// history of what was decided.
	history history
	// lastJob is when there was a job last, and paced what behavior looks back at, with the number that it gave
	// last, once isPaced; of the one worker that has the pool.
	lastJob time.Time
	paced   demand.History
	desired int32
	isPaced bool
}

func (m *memory) of(pool types.NamespacedName) *recollection {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pools == nil {
		m.pools = map[types.NamespacedName]*recollection{}
	}
	if m.pools[pool] == nil {
		m.pools[pool] = &recollection{created: map[string]*v1alpha1.Runner{}, connected: map[string]bool{}, circuits: map[string]scaling.Circuit{}}
	}
	return m.pools[pool]
}

func (m *memory) drop(pool types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pools, pool)
}

// expect remembers a runner before it is created.
func (c *recollection) expect(r *v1alpha1.Runner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.created[r.Name] = r
}

// failed forgets one that was not created.
func (c *recollection) failed(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.created, name)
}

// missing returns the expected runners that are not among those shown, and
// forgets the others.
func (c *recollection) missing(shown []*v1alpha1.Runner, now time.Time) []*v1alpha1.Runner {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range shown {
		delete(c.created, r.Name)
	}
	var missing []*v1alpha1.Runner
	for name, r := range c.created {
		if now.Sub(r.CreationTimestamp.Time) > expectationLife {
			delete(c.created, name)
			continue
		}
		missing = append(missing, r)
	}
	return missing
}

// count makes sure that a number is not given again.
func (c *recollection) count(number int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last, number)
}

// next returns the next runner's number.
func (c *recollection) next() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	return c.last
}
