// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/internal/policy"
)

const (
	// passDelay is how long the Engine collects changes of grants before it checks the pools that these may affect. After
	// a pass, the next pass of the same namespace is delayed by perPool for each pool of the pass.
	passDelay, perPool = 100 * time.Millisecond, 200 * time.Microsecond
	// leastAsked is the maximum number of pools of a namespace that are evaluated in one pass, plus one for each askedOf
	// pools. If many pools wait for one free runner, a few evaluations suffice, because the next pass finds that one of
	// the pools took the runner.
	leastAsked, askedOf = 32, 32
)

// passes contains the work for the next passes.
type passes struct {
	// dirty contains the groups in which a grant changed. pending contains, for each namespace, the changed groups that
	// its pools read.
	dirty   map[policy.GroupKey]bool
	pending map[string]map[policy.GroupKey]bool
	running map[string]bool // namespaces whose pools are being checked
	stirred chan struct{}
}

func newPasses() passes {
	return passes{
		dirty: map[policy.GroupKey]bool{}, pending: map[string]map[policy.GroupKey]bool{}, running: map[string]bool{}, stirred: make(chan struct{}, 1),
	}
}

// Start runs passes until ctx ends. After grants change, a pass evaluates the pools whose rules read the affected
// groups, and wakes the pools whose limits changed. Start makes Engine a manager.Runnable.
func (e *Engine) Start(ctx context.Context) error {
	var under sync.WaitGroup
	defer under.Wait()
	for {
		select {
		case <-e.passes.stirred:
		case <-ctx.Done():
			return nil
		}
		pause(ctx, passDelay)
		e.begin(ctx, &under, &atomic.Int64{})
	}
}

// pause waits for a duration, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// NeedLeaderElection returns true, because only the leader makes decisions.
func (*Engine) NeedLeaderElection() bool { return true }

// reconsider makes the next pass check the pools whose rules read the given groups.
func (e *Engine) reconsider(groups []policy.GroupKey) {
	if len(groups) == 0 {
		return
	}
	e.mu.Lock()
	for _, g := range groups {
		e.passes.dirty[g] = true
	}
	e.mu.Unlock()
	e.stir()
}

// stir makes Start run a pass soon.
func (e *Engine) stir() {
	select {
	case e.passes.stirred <- struct{}{}:
	default: // a pass is already triggered
	}
}

// Pass runs the pending passes of all namespaces and waits for them. It returns how many pools it evaluated.
func (e *Engine) Pass(ctx context.Context) int {
	var under sync.WaitGroup
	var asked atomic.Int64
	e.begin(ctx, &under, &asked)
	under.Wait()
	return int(asked.Load())
}

// begin starts a pass for each namespace with pending groups and no running pass. The passes run concurrently, so that
// slow rules of one namespace delay no other namespace. begin releases the lock from time to time, because the pools of
// a tenant may be in any number of groups.
func (e *Engine) begin(ctx context.Context, under *sync.WaitGroup, asked *atomic.Int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	dirty, steps := e.passes.dirty, 0
	e.passes.dirty = map[policy.GroupKey]bool{}
	for g := range dirty {
		e.release(&steps)
		for _, namespace := range e.ledger.namespaces(g) {
			e.passes.await(namespace, g)
		}
	}
	for namespace, groups := range e.passes.pending {
		if !e.passes.running[namespace] {
			e.passes.running[namespace] = true
			delete(e.passes.pending, namespace)
			under.Go(func() { asked.Add(e.pass(ctx, namespace, slices.Collect(maps.Keys(groups)))) })
		}
	}
}

// await adds a group to the next pass of a namespace.
func (p *passes) await(namespace string, g policy.GroupKey) {
	if p.pending[namespace] == nil {
		p.pending[namespace] = map[policy.GroupKey]bool{}
	}
	p.pending[namespace][g] = true
}

// pass checks the pools of a namespace that read the given groups, in random order. It may not evaluate all of them,
// but the random order gives each pool its turn in one of the next passes. It returns how many pools it evaluated.
func (e *Engine) pass(ctx context.Context, namespace string, groups []policy.GroupKey) (asked int64) {
	keys := map[types.NamespacedName]bool{}
	for _, g := range groups {
		for _, m := range e.ledger.list(g, namespace) {
			keys[types.NamespacedName{Namespace: m.Namespace, Name: m.Name}] = true
		}
	}
	most := int64(leastAsked + len(keys)/askedOf)
	for key := range keys {
		if asked == most || ctx.Err() != nil {
			break
		}
		if known := e.ledger.moved(key); known != nil {
			asked++
			e.ask(ctx, key, known)
		}
	}
	pause(ctx, time.Duration(len(keys))*perPool)
	e.mu.Lock()
	defer e.mu.Unlock()
	steps := 0
	for _, g := range groups {
		if e.release(&steps); asked == most {
			e.passes.await(namespace, g)
		}
	}
	delete(e.passes.running, namespace)
	if len(e.passes.dirty)+len(e.passes.pending) > 0 {
		e.stir()
	}
	return asked
}

// ask evaluates the policies of a pool again, and wakes the pool if its limits changed since its last decision.
func (e *Engine) ask(ctx context.Context, key types.NamespacedName, known *entry) {
	bound := e.again(key)
	if bound == nil {
		return // the pool was deleted
	}
	in := known.in
	in.Now = e.Now().UnixNano()
	a := e.Scaling(ctx, bound, in)
	e.ledger.saw(known, a.read)
	answer, before := a.Answer, known.answer
	if answer.Scale != before.Scale || answer.AssignedJobs != before.AssignedJobs || len(answer.Failures) != len(before.Failures) ||
		!equality.Semantic.DeepEqual(answer.Bounds, before.Bounds) {
		e.Pools.Wake(key)
	}
}
