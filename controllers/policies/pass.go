// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
)

// passDelay is how long changes of what pools are granted are gathered before those that share
// a ceiling with them are looked at.
const passDelay = 100 * time.Millisecond

// Start looks at pools that share something with one whose grant changed, and wakes those whose
// limits are others now, until ctx ends. It is a manager.Runnable.
func (e *Engine) Start(ctx context.Context) error {
	var passes sync.WaitGroup
	defer passes.Wait()
	for {
		select {
		case <-e.stirred:
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
		e.begin(ctx, &passes)
	}
}

// NeedLeaderElection is true: only the leader decides.
func (*Engine) NeedLeaderElection() bool { return true }

// reconsider has pools looked at in the next pass.
func (e *Engine) reconsider(pools []types.NamespacedName) {
	if len(pools) == 0 {
		return
	}
	e.mu.Lock()
	for _, key := range pools {
		e.dirty[key] = true
	}
	e.mu.Unlock()
	e.stir()
}

// stir has a pass begun soon.
func (e *Engine) stir() {
	select {
	case e.stirred <- struct{}{}:
	default: // a pass is to come anyway
	}
}

// Pass asks about the pools that have to be looked at, and wakes those whose answer is another. It returns how many it
// asked about.
func (e *Engine) Pass(ctx context.Context) int {
	var passes sync.WaitGroup
	defer passes.Wait()
	return e.begin(ctx, &passes)
}

// begin begins a pass over each namespace that none is under way for: rules of one may take long, and others don't wait.
func (e *Engine) begin(ctx context.Context, passes *sync.WaitGroup) (pools int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	of := map[string][]types.NamespacedName{}
	for key := range e.dirty {
		if !e.passing[key.Namespace] {
			of[key.Namespace] = append(of[key.Namespace], key)
			delete(e.dirty, key)
			pools++
		}
	}
	for namespace, keys := range of {
		e.passing[namespace] = true
		passes.Go(func() { e.pass(ctx, namespace, keys) })
	}
	return pools
}

// pass asks about pools of a namespace, in the order of their names.
func (e *Engine) pass(ctx context.Context, namespace string, keys []types.NamespacedName) {
	slices.SortFunc(keys, compareKeys)
	for _, key := range keys {
		if ctx.Err() == nil && e.differs(ctx, key) {
			e.mu.Lock()
			e.wake(key)
			e.mu.Unlock()
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.passing, namespace)
	if len(e.dirty) > 0 {
		e.stir()
	}
}

// differs says whether the limits of a pool are others than when it was asked about last.
func (e *Engine) differs(ctx context.Context, key types.NamespacedName) bool {
	known, ok := e.ledger.entry(key)
	if !ok || known.answer == nil {
		return false
	}
	bound := e.again(key)
	if bound == nil {
		return false // it is gone
	}
	in := known.in
	in.Now = e.Now().UnixNano()
	answer, before := e.Scaling(ctx, bound, in).Answer, known.answer
	return answer.Scale != before.Scale || answer.Hard != before.Hard || len(answer.Failures) != len(before.Failures) ||
		!equality.Semantic.DeepEqual(answer.Bounds, before.Bounds)
}
