// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"context"
	"slices"
	"sync"
)

const (
	// firstParallel is how many calls may be under way before anything is known of GitHub.
	firstParallel = 32
	// mostParallel is what GitHub's documentation allows at once, about 100, less a margin.
	mostParallel = 96
	// outOfTurn is how many turns go by priority before one goes to the last in rank, so
	// that lookups come through a never-ending burst.
	outOfTurn = 8
)

// rank orders calls that wait for their turn; the lowest goes first.
type rank int

const (
	removing    rank = iota // frees what others wait for
	registering             // a job waits for the runner
	changing                // sessions and scale sets
	looking
	ranks
)

func (e endpoint) rank() rank {
	switch e {
	case endpointRunnerDelete:
		return removing
	case endpointGenerateJIT:
		return registering
	case endpointSessionCreate, endpointScaleSetCreate, endpointScaleSetUpdate, endpointScaleSetDelete:
		return changing
	}
	return looking
}

// flowKey is the context key of the scale set that a call is made for.
type flowKey struct{}

// InFlow says which scale set calls are made for whose arguments don't tell. Calls that
// wait for their turn are served one scale set after the other.
func InFlow(ctx context.Context, setID int64) context.Context {
	return context.WithValue(ctx, flowKey{}, setID)
}

func flowOf(ctx context.Context) int64 {
	setID, _ := ctx.Value(flowKey{}).(int64)
	return setID
}

// limiter bounds how many calls are under way, by additive increase and multiplicative
// decrease: one more for each limit's worth of good answers while the limit is felt,
// half of it when GitHub is overloaded. Who waits is served by rank, then scale set
// after scale set, then first come, first served.
type limiter struct {
	most float64

	mu       sync.Mutex
	limit    float64
	underWay int
	round    int // grows when the limit is cut
	served   int // how many waited and were served
	waiting  [ranks]line
}

// bearing is what the end of a call says about GitHub's load.
type bearing int

const (
	unknown    bearing = iota // not called, or the caller left
	good                      // answered, if only with a refusal
	overloaded                // 429, 5xx or no answer
)

func newLimiter(most int) *limiter {
	return &limiter{most: float64(most), limit: float64(min(firstParallel, most))}
}

// enter waits for a turn, until ctx ends. The round is to be given to leave.
func (l *limiter) enter(ctx context.Context, r rank, flow int64) (round int, err error) {
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
		l.leave(<-w.turn, unknown)
	}
	return 0, ctx.Err()
}

// leave ends a turn. A call that began before the last cut does not cut again.
func (l *limiter) leave(round int, b bearing) {
	l.mu.Lock()
	defer l.mu.Unlock()
	felt := 2*l.underWay >= int(l.limit)
	l.underWay--
	switch {
	case b == overloaded && round == l.round:
		l.limit = max(1, l.limit/2)
		l.round++
	case b == good && felt:
		l.limit = min(l.most, l.limit+1/l.limit)
	}
	l.serve()
}

// serve gives turns to those who wait while there are any.
func (l *limiter) serve() {
	for l.underWay < int(l.limit) {
		w := l.next()
		if w == nil {
			return
		}
		l.underWay++
		w.turn <- l.round
	}
}

func (l *limiter) next() *waiter {
	order := []rank{removing, registering, changing, looking}
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

// line is who waits within one rank.
type line struct {
	flows map[int64][]*waiter // none is empty
	order []int64             // the flows, the next to be served first
}

type waiter struct {
	flow int64
	turn chan int // gets the round
}

func (l *line) push(w *waiter) {
	if l.flows == nil {
		l.flows = map[int64][]*waiter{}
	}
	if len(l.flows[w.flow]) == 0 {
		l.order = append(l.order, w.flow)
	}
	l.flows[w.flow] = append(l.flows[w.flow], w)
}

// pop takes the first of the next flow, which is last in order then.
func (l *line) pop() *waiter {
	if len(l.order) == 0 {
		return nil
	}
	flow := l.order[0]
	l.order = l.order[1:]
	w := l.flows[flow][0]
	if l.flows[flow] = l.flows[flow][1:]; len(l.flows[flow]) == 0 {
		delete(l.flows, flow)
		return w
	}
	l.order = append(l.order, flow)
	return w
}

// remove says whether the waiter was there.
func (l *line) remove(w *waiter) bool {
	at := slices.Index(l.flows[w.flow], w)
	if at < 0 {
		return false
	}
	if l.flows[w.flow] = slices.Delete(l.flows[w.flow], at, at+1); len(l.flows[w.flow]) == 0 {
		delete(l.flows, w.flow)
		l.order = slices.DeleteFunc(l.order, func(flow int64) bool { return flow == w.flow })
	}
	return true
}
