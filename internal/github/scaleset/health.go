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
	// deadAfter is how many consecutive calls without an answer open a breaker.
	deadAfter = 3
	// probeMin and probeMax bound the jittered wait between probes.
	probeMin, probeMax = time.Second, 30 * time.Second
	// atOnce is the maximum duration of a call that ends at once, because its connection was refused or cut. Such a
	// call does not delay its caller.
	atOnce = time.Second
	// cutAfter is how many consecutive calls that end at once open a breaker. cutMin is then the first jittered wait,
	// and cutProbes is how many probes may be in flight.
	cutAfter, cutMin, cutProbes = 20, 100 * time.Millisecond, 4
	// wholeConnection stands for all endpoints of a connection.
	wholeConnection endpoint = ""
)

// health is a set of circuit breakers, for each endpoint and for the whole connection. While a breaker is open, calls
// fail at once instead of waiting for a timeout, except for one probe at a time. If the failed calls ended at once,
// several probes may be in flight. Any answer, even an error, closes the breakers of its endpoint and of the
// connection.
type health struct {
	now func() time.Time

	mu       sync.Mutex
	breakers map[subject]*breaker
}

// subject identifies a breaker.
type subject struct {
	class endpoint
	cut   bool // for calls that end at once without an answer, not for timeouts
}

// breaker is the state of one endpoint, or of the whole connection.
type breaker struct {
	subject
	silent  map[endpoint]int // consecutive calls without an answer
	after   int              // the number of such calls that opens the breaker
	least   int              // the number of silent endpoints that opens it
	probes  int              // the maximum number of concurrent probes
	first   time.Duration    // the wait before the first probe
	probing int
	next    time.Time // when the next probe is allowed
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
	on     []*breaker // the breakers that the call's result affects
	probes []*breaker // the open breakers, if the call is a probe
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

// close resets the breaker.
func (b *breaker) close() {
	clear(b.silent)
	b.wait = newBackoff(b.first, probeMax)
}

// isProbe reports whether the call is a probe, which may take long.
func (p *pass) isProbe() bool { return len(p.probes) > 0 }

// giveBack returns a pass that has no result, because the call was not made or its caller left.
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

// answered records a call that was answered.
func (h *health) answered(p *pass) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.over()
	for _, b := range p.on {
		b.close()
	}
}

// unanswered records a call without an answer. If a breaker is open then, it returns the same error that later callers
// get from admit.
func (h *health) unanswered(p *pass, cause string) *github.Error {
	h.mu.Lock()
	defer h.mu.Unlock()
	p.over()
	var dead *breaker
	cut := h.now().Sub(p.began) < atOnce
	for i := len(p.on) - 1; i >= 0; i-- { // the error of the whole connection takes precedence
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

// refusal returns the error for an open breaker. Its text is the same for each attempt.
func (b *breaker) refusal(now time.Time) *github.Error {
	after := max(b.first, b.next.Sub(now))
	return &github.Error{
		Kind: github.KindUnavailable, RetryAfter: after, Next: now.Add(after),
		Message: fmt.Sprintf("GitHub didn't answer the last %d calls (%s)", b.after, b.cause),
	}
}
