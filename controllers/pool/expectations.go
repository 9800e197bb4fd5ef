// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pool

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// expectationLife bounds how long a created runner is believed in although the
// cache never showed it.
const expectationLife = 30 * time.Second

// expectations remembers runners that were created but that the cache does not
// show yet. A pass on a stale cache would create them again.
type expectations struct {
	mu      sync.Mutex
	pending map[types.NamespacedName]map[string]*v1alpha1.Runner
}

func (e *expectations) expect(pool types.NamespacedName, r *v1alpha1.Runner) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pending == nil {
		e.pending = map[types.NamespacedName]map[string]*v1alpha1.Runner{}
	}
	if e.pending[pool] == nil {
		e.pending[pool] = map[string]*v1alpha1.Runner{}
	}
	e.pending[pool][r.Name] = r
}

func (e *expectations) failed(pool types.NamespacedName, name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.pending[pool], name)
}

// missing returns the expected runners that are not among those shown, and
// forgets the others.
func (e *expectations) missing(pool types.NamespacedName, shown []*v1alpha1.Runner, now time.Time) []*v1alpha1.Runner {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range shown {
		delete(e.pending[pool], r.Name)
	}
	var missing []*v1alpha1.Runner
	for name, r := range e.pending[pool] {
		if now.Sub(r.CreationTimestamp.Time) > expectationLife {
			delete(e.pending[pool], name)
			continue
		}
		missing = append(missing, r)
	}
	return missing
}

func (e *expectations) drop(pool types.NamespacedName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.pending, pool)
}
