// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/corral-dev/corral/internal/github"
)

const (
	// deadAfter is how many calls in a row without any answer make what was called dead.
	deadAfter = 3
	// probeMin and probeMax bound the jittered wait between calls to what is dead.
	probeMin, probeMax = time.Second, 30 * time.Second
	// wholeConnection is all of GitHub, as far as a connection sees it.
	wholeConnection endpoint = ""
)

// health keeps calls away from what doesn't answer, one endpoint or, when several
// endpoints don't, the whole connection: nobody waits there for a time-out but one probe
// at a time. Any answer, if only an error, ends it.
type health struct {
	now func() time.Time

	mu       sync.Mutex
	breakers map[endpoint]*breaker
}

// breaker is what is known of one endpoint, or of all of them.
type breaker struct {
	silent  map[endpoint]int // calls in a row without an answer
	least   int              // how many endpoints must be silent
	probing bool
	next    time.Time // when the next probe may go
	wait    wait.Backoff
	cause   string
}

func (b *breaker) isDead() bool {
	sum := 0
	for _, n := range b.silent {
		sum += n
	}
	return sum >= deadAfter && len(b.silent) >= b.least
}

// pass is the permission for one call.
type pass struct {
	class  endpoint
	on     []*breaker // what the call tells about
	probes []*breaker // what is dead, where this is the probe
}

func newHealth(now func() time.Time) *health {
	return &health{now: now, breakers: map[endpoint]*breaker{}}
}

// admit returns the permission to call an endpoint, or an error without Doing.
func (h *health) admit(class endpoint) (*pass, *github.Error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &pass{class: class, on: []*breaker{h.breaker(wholeConnection), h.breaker(class)}}
	for _, b := range p.on {
		if !b.isDead() {
			continue
		}
		if b.probing || h.now().Before(b.next) {
			return nil, b.refusal(h.now())
		}
		p.probes = append(p.probes, b)
	}
	for _, b := range p.probes {
		b.probing = true
	}
	return p, nil
}

func (h *health) breaker(class endpoint) *breaker {
	b := h.breakers[class]
	if b == nil {
		b = &breaker{silent: map[endpoint]int{}, least: 1, wait: newBackoff(probeMin, probeMax)}
		if class == wholeConnection {
			b.least = 2
		}
		h.breakers[class] = b
	}
	return b
}

// isProbe says whether what is called is dead, so that the call may take long.
func (p *pass) isProbe() bool { return len(p.probes) > 0 }

// giveBack ends a call of which nothing is learned: it was not made, or its caller left.
func (h *health) giveBack(p *pass) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.over()
}

func (p *pass) over() {
	for _, b := range p.probes {
		b.probing = false
	}
}

// answered ends a call that was answered.
func (h *health) answered(p *pass) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.over()
	for _, b := range p.on {
		clear(b.silent)
		b.wait = newBackoff(probeMin, probeMax)
	}
}

// unanswered ends a call that got no answer. It returns the error that says so, if what
// was called is dead now: the same words for who called and for who must not call.
func (h *health) unanswered(p *pass, cause string) *github.Error {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.over()
	var dead *breaker
	for i := len(p.on) - 1; i >= 0; i-- { // the whole connection has the last word
		b := p.on[i]
		wasDead := b.isDead()
		b.silent[p.class]++
		b.cause = cause
		if !b.isDead() {
			continue
		}
		dead = b
		if !wasDead || p.isProbe() {
			b.next = h.now().Add(b.wait.Step())
		}
	}
	if dead == nil {
		return nil
	}
	return dead.refusal(h.now())
}

// refusal tells of what is dead in words that are the same at each attempt.
func (b *breaker) refusal(now time.Time) *github.Error {
	return &github.Error{
		Kind: github.KindUnavailable, RetryAfter: max(probeMin, b.next.Sub(now)), Uncalled: true,
		Message: fmt.Sprintf("GitHub didn't answer the last %d calls (%s)", deadAfter, b.cause),
	}
}
