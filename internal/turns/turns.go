// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package turns bounds how many calls of a remote end are under way, by how it answers, and
// says who is next: by rank, then one tenant after the other, and one of its flows after the other.
package turns

import (
	"context"
	"slices"
	"strings"
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
// half of it when the remote end is overloaded. Who waits is served by rank, then tenant after tenant, flow after
// flow, then first come, first served.
type Limiter struct {
	most float64

	mu       sync.Mutex
	limit    float64
	underWay int
	round    int // grows when the limit is cut
	served   int // how many waited and were served
	waiting  [ranks]line
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
	w := &waiter{flow: flow, turn: make(chan int, 1)}
	l.waiting[r].push(w)
	l.serve()
	l.mu.Unlock()
	select {
	case round = <-w.turn:
		return round, nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	left := l.waiting[r].remove(w)
	l.mu.Unlock()
	if !left { // served in the same moment
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
		if w := l.waiting[r].pop(); w != nil {
			l.served++
			return w
		}
	}
	return nil
}

// line is who waits within one Rank: tenants take turns, and within a tenant its flows do. A tenant is what a flow's name begins with, up
// to a slash; so one tenant's many flows get no more turns than another's one.
type line struct {
	tenants map[string]*tenant // none is empty
	order   []string           // the tenants, the next to be served first
}

// tenant is who waits of one tenant's flows.
type tenant struct {
	flows map[string][]*waiter // none is empty
	order []string             // the flows, the next to be served first
}

type waiter struct {
	flow string
	turn chan int // gets the round
}

// tenant that the waiter is of.
func (w *waiter) tenant() string {
	name, _, found := strings.Cut(w.flow, "/")
	if !found {
		return ""
	}
	return name
}

func (l *line) push(w *waiter) {
	if l.tenants == nil {
		l.tenants = map[string]*tenant{}
	}
	name := w.tenant()
	t := l.tenants[name]
	if t == nil {
		t = &tenant{flows: map[string][]*waiter{}}
		l.tenants[name] = t
		l.order = append(l.order, name)
	}
	if len(t.flows[w.flow]) == 0 {
		t.order = append(t.order, w.flow)
	}
	t.flows[w.flow] = append(t.flows[w.flow], w)
}

// pop takes the first of the next tenant's next flow; both are last in order then.
func (l *line) pop() *waiter {
	if len(l.order) == 0 {
		return nil
	}
	name := l.order[0]
	l.order = l.order[1:]
	t := l.tenants[name]
	w := t.pop()
	if len(t.flows) == 0 {
		delete(l.tenants, name)
		return w
	}
	l.order = append(l.order, name)
	return w
}

func (t *tenant) pop() *waiter {
	flow := t.order[0]
	t.order = t.order[1:]
	w := t.flows[flow][0]
	if t.flows[flow] = t.flows[flow][1:]; len(t.flows[flow]) == 0 {
		delete(t.flows, flow)
		return w
	}
	t.order = append(t.order, flow)
	return w
}

// remove says whether the waiter was there.
func (l *line) remove(w *waiter) bool {
	name := w.tenant()
	t := l.tenants[name]
	if t == nil {
		return false
	}
	at := slices.Index(t.flows[w.flow], w)
	if at < 0 {
		return false
	}
	if t.flows[w.flow] = slices.Delete(t.flows[w.flow], at, at+1); len(t.flows[w.flow]) == 0 {
		delete(t.flows, w.flow)
		t.order = slices.DeleteFunc(t.order, func(flow string) bool { return flow == w.flow })
	}
	if len(t.flows) == 0 {
		delete(l.tenants, name)
		l.order = slices.DeleteFunc(l.order, func(tenant string) bool { return tenant == name })
	}
	return true
}
