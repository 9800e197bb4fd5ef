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
	// passDelay is how long changes of what pools are granted are gathered before pools that share a ceiling with them are looked
	// at, and perPool how much longer a namespace waits for its next pass, for each pool that it looked at.
	passDelay, perPool = 100 * time.Millisecond, 200 * time.Microsecond
	// leastAsked is how many pools of a namespace may be asked about in one pass, and askedOf for how many pools it may be one more:
	// if a runner becomes free and many pools wait for it, the next pass finds it taken.
	leastAsked, askedOf = 32, 32
)

// passes are what is to be looked at.
type passes struct {
	// dirty are the groups in which a grant changed, and pending those of them that pools of a namespace read.
	dirty   map[policy.GroupKey]bool
	pending map[string]map[policy.GroupKey]bool
	running map[string]bool // namespaces whose pools are looked at
	stirred chan struct{}
}

func newPasses() passes {
	return passes{
		dirty: map[policy.GroupKey]bool{}, pending: map[string]map[policy.GroupKey]bool{}, running: map[string]bool{}, stirred: make(chan struct{}, 1),
	}
}

// Start looks at pools that share something with one whose grant changed, and wakes those whose
// limits are others now, until ctx ends. It is a manager.Runnable.
func (e *Engine) Start(ctx context.Context) error {
	var under sync.WaitGroup
	defer under.Wait()
	for {
		select {
		case <-e.passes.stirred:
		case <-ctx.Done():
			return nil
		}
		gathered := time.NewTimer(passDelay)
		select {
		case <-gathered.C:
		case <-ctx.Done():
			gathered.Stop()
			return nil
		}
		e.begin(ctx, &under, &atomic.Int64{})
	}
}

// NeedLeaderElection is true: only the leader decides.
func (*Engine) NeedLeaderElection() bool { return true }

// reconsider has pools that read groups looked at in the next pass.
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

// stir has a pass begun soon.
func (e *Engine) stir() {
	select {
	case e.passes.stirred <- struct{}{}:
	default: // a pass is to come anyway
	}
}

// Pass looks at the pools that have to be, and wakes those whose answer is another. It returns how many it asked about.
func (e *Engine) Pass(ctx context.Context) int {
	var under sync.WaitGroup
	var asked atomic.Int64
	e.begin(ctx, &under, &asked)
	under.Wait()
	return int(asked.Load())
}

// begin begins a pass over each namespace that none is under way for: rules of one may take long, and others don't wait.
func (e *Engine) begin(ctx context.Context, under *sync.WaitGroup, asked *atomic.Int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for g := range e.passes.dirty {
		for _, namespace := range e.ledger.namespaces(g) {
			e.passes.await(namespace, g)
		}
	}
	clear(e.passes.dirty)
	for namespace, groups := range e.passes.pending {
		if !e.passes.running[namespace] {
			e.passes.running[namespace] = true
			delete(e.passes.pending, namespace)
			under.Go(func() { asked.Add(e.pass(ctx, namespace, slices.Collect(maps.Keys(groups)))) })
		}
	}
}

// await has the pools of a namespace looked at that read a group.
func (p *passes) await(namespace string, g policy.GroupKey) {
	if p.pending[namespace] == nil {
		p.pending[namespace] = map[policy.GroupKey]bool{}
	}
	p.pending[namespace][g] = true
}

// pass looks at pools of a namespace, in no order: so each has its turn although not all can be asked about at once. It returns how
// many it asked about.
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
	select {
	case <-time.After(time.Duration(len(keys)) * perPool):
	case <-ctx.Done():
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.passes.running, namespace)
	for _, g := range groups {
		if asked == most {
			e.passes.await(namespace, g)
		}
	}
	if len(e.passes.dirty)+len(e.passes.pending) > 0 {
		e.stir()
	}
	return asked
}

// ask asks about a pool again, and wakes it if the limits are others than those that were decided on.
func (e *Engine) ask(ctx context.Context, key types.NamespacedName, known *entry) {
	bound := e.again(key)
	if bound == nil {
		return // it is gone
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
