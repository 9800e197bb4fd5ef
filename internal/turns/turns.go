// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package turns decides what is next when more waits than can be served at once: calls of a remote end in a Limiter, and keys of controllers
// in a work queue. Tenants take turns in both, and so do the flows of each tenant, so nobody's amount of work delays others.
package turns

import (
	"container/list"
	"context"
	"slices"
	"sync"
)

const (
	// First is how many calls may be under way before anything is known of the remote end.
	First = 32
	// Most is what GitHub's documentation allows at once, about 100, less a margin.
	Most = 96
	// outOfTurn is how many turns go by priority before one goes to the last in rank, so
	// that lookups come through a never-ending burst.
	outOfTurn = 8
)

// Rank orders calls that wait for their turn; the lowest goes first.
type Rank int

// Ranks of calls.
const (
	// Removing frees what others wait for.
	Removing Rank = iota
	// Registering is for a runner that a job waits for.
	Registering
	// Changing is for sessions, scale sets and the like.
	Changing
	// Looking is for one thing, and somebody waits for the answer.
	Looking
	// Listing can wait longest.
	Listing
	ranks
)

// Limiter bounds how many calls are under way, by additive increase and multiplicative
// decrease: one more for each limit's worth of good answers while the limit is felt,
// half of it when the remote end is overloaded. Waiting calls are served by rank; within a rank, tenants and their flows take turns.
type Limiter struct {
	most float64

	mu       sync.Mutex
	limit    float64
	underWay int
	round    int // grows when the limit is cut
	served   int // how many waited and were served
	waiting  [ranks]node[*waiter]
}

// Bearing is what the end of a call says about the remote end's load.
type Bearing int

// Bearings of a call's end.
const (
	// Unknown is of a call that was not made, or whose caller left.
	Unknown Bearing = iota
	// Good is an answer, if only a refusal.
	Good
	// Overloaded is 429, 5xx or no answer.
	Overloaded
)

// New returns a Limiter that never lets more calls than most be under way.
func New(most int) *Limiter {
	return &Limiter{most: float64(most), limit: float64(min(First, most))}
}

// Enter waits for a turn, until ctx ends. The round is to be given to Leave.
func (l *Limiter) Enter(ctx context.Context, r Rank, flow string) (round int, err error) {
	l.mu.Lock()
	w := &waiter{turn: make(chan int, 1)}
	leaf := l.waiting[r].flow(flow)
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
	if !isWaiting { // served in the same moment
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

// serve gives turns to those who wait while there are any.
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
			leaf.done() // what is under way is counted for all together
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
	turn  chan int      // gets the round
}
