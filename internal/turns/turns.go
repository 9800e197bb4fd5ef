// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package turns decides the order when more work waits than can be done at once: calls of a remote end in a Limiter,
// and keys of controllers in a work queue. In both, tenants take turns, and so do the flows of each tenant, so that one
// tenant's amount of work does not delay the others.
package turns

import (
	"container/list"
	"context"
	"slices"
	"sync"
)

const (
	// First is the number of concurrent calls before anything is known about the remote end.
	First = 32
	// Most is the number of concurrent calls that GitHub's documentation allows, about 100, less a margin.
	Most = 96
	// outOfTurn is the number of turns by priority before the lowest rank gets one, so that lookups are served during
	// an endless burst.
	outOfTurn = 8
)

// Rank is the priority of calls that wait for their turn; the lowest goes first.
type Rank int

// Ranks of calls.
const (
	// Removing frees resources that other calls wait for.
	Removing Rank = iota
	// Registering is for a runner that a job waits for.
	Registering
	// Changing is for sessions, scale sets and the like.
	Changing
	// Looking is for one object, and a caller waits for the answer.
	Looking
	// Listing can wait longest.
	Listing
	ranks
)

// Limiter limits the number of concurrent calls, by additive increase and multiplicative decrease: the limit grows by
// one for each limit's worth of good answers while it is in use, and is halved when the remote end is overloaded.
// Waiting calls are served by rank; within a rank, tenants and their flows take turns.
type Limiter struct {
	most float64

	mu       sync.Mutex
	limit    float64
	underWay int
	round    int // grows when the limit is cut
	served   int // the number of waiting calls that were served
	waiting  [ranks]node[*waiter]
}

// Bearing is what the result of a call indicates about the remote end's load.
type Bearing int

// Bearings of a call's end.
const (
	// Unknown is for a call that was not made, or whose caller left.
	Unknown Bearing = iota
	// Good is for any answer, including refusals.
	Good
	// Overloaded is for 429, 5xx or no answer.
	Overloaded
)

// New returns a Limiter that never allows more than most concurrent calls.
func New(most int) *Limiter {
	return &Limiter{most: float64(most), limit: float64(min(First, most))}
}

// Enter waits for a turn, until ctx ends. The caller must pass the round to Leave.
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
	if !isWaiting { // served at the same moment
		l.Leave(<-w.turn, Unknown)
	}
	return 0, ctx.Err()
}

// Leave ends a turn. A call that began before the last cut does not cut again.
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

// serve gives turns to waiting calls while there are any.
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
			leaf.done() // active calls are counted for all ranks together
			w.place = nil
			l.served++
			return w
		}
	}
	return nil
}

// waiter is a call that waits for its turn.
type waiter struct {
	place *list.Element // nil once it is served
	turn  chan int      // receives the round
}
