// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package turns decides the order of work if more waits than can be done at once: calls to a remote API in a Limiter,
// and keys of controllers in a work queue. In both, tenants take turns, and so do the flows of each tenant, so that
// much work of one tenant does not delay the others.
package turns

import (
	"container/list"
	"context"
	"slices"
	"sync"
)

const (
	// First is the initial limit of concurrent calls, before any call has succeeded or failed.
	First = 32
	// Most is the maximum number of concurrent calls to GitHub. GitHub's documentation allows about 100.
	Most = 96
	// outOfTurn is the interval at which a waiting call is chosen in the reverse order of ranks: every outOfTurn-th call.
	// So calls of the lowest ranks are served even while calls of higher ranks always wait.
	outOfTurn = 8
)

// Rank is the priority of a waiting call. Calls with the lowest value go first.
type Rank int

// Ranks of calls.
const (
	// Removing is for calls that free resources, which other calls may wait for.
	Removing Rank = iota
	// Registering is for the registration of a runner that a job waits for.
	Registering
	// Changing is for calls that change other objects, such as sessions and scale sets.
	Changing
	// Looking is for reading one object while a caller waits for the answer.
	Looking
	// Listing is for lists, which can wait longest.
	Listing
	ranks
)

// Limiter limits the number of concurrent calls, by additive increase and multiplicative decrease. While at least half
// of the limit is in use, as many good answers as the limit increase it by one. An answer that indicates overload
// halves it. Waiting calls are served by rank; within a rank, tenants and their flows take turns.
type Limiter struct {
	most float64

	mu       sync.Mutex
	limit    float64
	underWay int
	round    int // number of times that the limit was halved
	served   int // number of calls that got a turn
	waiting  [ranks]node[*waiter]
}

// Bearing is what the result of a call indicates about the load of the remote API.
type Bearing int

// Bearings of results.
const (
	// Unknown means that the result indicates nothing, for example because the call was not made or its context ended.
	Unknown Bearing = iota
	// Good means an answer that does not indicate overload, including refusals such as 404.
	Good
	// Overloaded means 429, 5xx or no answer.
	Overloaded
)

// New returns a Limiter that never allows more than most concurrent calls.
func New(most int) *Limiter {
	return &Limiter{most: float64(most), limit: float64(min(First, most))}
}

// Enter waits for a turn, or until ctx ends. If it returns no error, the caller must pass the round to Leave.
func (l *Limiter) Enter(ctx context.Context, r Rank, flow string) (round int, err error) {
	l.mu.Lock()
	w := &waiter{turn: make(chan int, 1)}
	leaf := l.waiting[r].flow(flow, 0)
	w.place = leaf.push(w)
	l.serve()
	l.mu.Unlock()
	select {
	case round = <-w.turn:
		return round, nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	isWaiting := w.place != nil
	if isWaiting {
		leaf.remove(w.place)
	}
	l.mu.Unlock()
	if !isWaiting { // the call got its turn at the same moment
		l.Leave(<-w.turn, Unknown)
	}
	return 0, ctx.Err()
}

// Leave ends a turn. A call that began before the limit was last halved does not halve it again.
func (l *Limiter) Leave(round int, b Bearing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	felt := 2*l.underWay >= int(l.limit)
	l.underWay--
	switch {
	case b == Overloaded && round == l.round:
		l.limit = max(1, l.limit/2)
		l.round++
	case b == Good && felt:
		l.limit = min(l.most, l.limit+1/l.limit)
	}
	l.serve()
}

// serve gives turns to waiting calls while the limit allows it.
func (l *Limiter) serve() {
	for l.underWay < int(l.limit) {
		w := l.next()
		if w == nil {
			return
		}
		l.underWay++
		w.turn <- l.round
	}
}

func (l *Limiter) next() *waiter {
	order := []Rank{Removing, Registering, Changing, Looking, Listing}
	if l.served%outOfTurn == outOfTurn-1 {
		slices.Reverse(order)
	}
	for _, r := range order {
		if w, leaf := l.waiting[r].pop(); leaf != nil {
			leaf.done() // underWay counts the active calls of all ranks together
			w.place = nil
			l.served++
			return w
		}
	}
	return nil
}

// waiter is a call that waits for its turn.
type waiter struct {
	place *list.Element // nil once the call has its turn
	turn  chan int      // receives the round
}
