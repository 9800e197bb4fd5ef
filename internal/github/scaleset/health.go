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
	// atOnce is what a call takes at most whose connection was refused or cut: nobody waited for it.
	atOnce = time.Second
	// cutAfter is how many calls in a row that ended at once make calls wait, cutMin the first jittered wait, cutProbes how many go then.
	cutAfter, cutMin, cutProbes = 20, 100 * time.Millisecond, 4
	// wholeConnection is all of GitHub, as far as a connection sees it.
	wholeConnection endpoint = ""
)

// health keeps calls away from what doesn't answer, one endpoint or, when several
// endpoints don't, the whole connection: nobody waits there for a time-out but one probe
// at a time. Where many calls end at once, a few go on together. Any answer, if only an
// error, ends both.
type health struct {
	now func() time.Time

	mu       sync.Mutex
	breakers map[subject]*breaker
}

// subject is what a breaker is about.
type subject struct {
	class endpoint
	cut   bool // calls that end at once without an answer, and not those that were waited for
}

// breaker is what is known of one endpoint, or of all of them.
type breaker struct {
	subject
	silent  map[endpoint]int // calls in a row without an answer
	after   int              // how many of them make it dead
	least   int              // how many endpoints must be silent
	probes  int              // how many probes may be under way
	first   time.Duration    // the wait before the first probe
	probing int
	next    time.Time // when the next probe may go
	wait    wait.Backoff
	cause   string
}

func (b *breaker) isDead() bool {
	sum := 0
	for _, n := range b.silent {
		sum += n
	}
	return sum >= b.after && len(b.silent) >= b.least
}

// pass is the permission for one call.
type pass struct {
	class  endpoint
	began  time.Time
	on     []*breaker // what the call tells about
	probes []*breaker // what is dead, where this is a probe
}

func newHealth(now func() time.Time) *health {
	return &health{now: now, breakers: map[subject]*breaker{}}
}

// admit returns the permission to call an endpoint, or an error without Doing.
func (h *health) admit(class endpoint) (*pass, *github.Error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &pass{class: class, began: h.now(), on: []*breaker{h.breaker(subject{class: wholeConnection}), h.breaker(subject{class: class}), h.breaker(subject{class, true})}}
	for _, b := range p.on {
		if !b.isDead() {
			continue
		}
		if b.probing >= b.probes || h.now().Before(b.next) {
			return nil, b.refusal(h.now())
		}
		p.probes = append(p.probes, b)
	}
	for _, b := range p.probes {
		b.probing++
	}
	return p, nil
}

func (h *health) breaker(of subject) *breaker {
	b := h.breakers[of]
	if b == nil {
		b = &breaker{subject: of, silent: map[endpoint]int{}, after: deadAfter, least: 1, probes: 1, first: probeMin}
		if of.class == wholeConnection {
			b.least = 2
		}
		if of.cut {
			b.after, b.probes, b.first = cutAfter, cutProbes, cutMin
		}
		b.close()
		h.breakers[of] = b
	}
	return b
}

// close forgets the calls without an answer.
func (b *breaker) close() {
	clear(b.silent)
	b.wait = newBackoff(b.first, probeMax)
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
		b.probing--
	}
}

// answered ends a call that was answered.
func (h *health) answered(p *pass) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.over()
	for _, b := range p.on {
		b.close()
	}
}

// unanswered ends a call that got no answer. It returns the error that says so, if what
// was called is dead now: the same words for who called and for who must not call.
func (h *health) unanswered(p *pass, cause string) *github.Error {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.over()
	var dead *breaker
	cut := h.now().Sub(p.began) < atOnce
	for i := len(p.on) - 1; i >= 0; i-- { // the whole connection has the last word
		b := p.on[i]
		if b.cut != cut {
			continue
		}
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
	after := max(b.first, b.next.Sub(now))
	return &github.Error{
		Kind: github.KindUnavailable, RetryAfter: after, Next: now.Add(after),
		Message: fmt.Sprintf("GitHub didn't answer the last %d calls (%s)", b.after, b.cause),
	}
}
