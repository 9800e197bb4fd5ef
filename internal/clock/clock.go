// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package clock reads a server's clock from the Date header of its regular answers.
package clock

import (
	"net/http"
	"sync"
	"time"

	"github.com/corral-dev/corral/internal/meter"
)

const (
	// tolerance is the largest difference that is ignored: the header has whole seconds, and answers take time to arrive.
	tolerance = 2 * time.Second
	// Limit is the difference above which a clock is reported as wrong.
	Limit = 30 * time.Second
	// confirmAfter is for how long answers must agree on a new difference that exceeds Limit: a single answer may come
	// from a gateway or from a server whose clock is wrong.
	confirmAfter = 5 * time.Second
)

// Offsets is the metric of how far servers' clocks are ahead.
var Offsets = meter.Gauges("corral_clock_offset_seconds",
	"Offset of the API server's clock from this process's clock or, by connection, of GitHub's clock from the API server's. Positive means that the first clock is ahead.", "server", "connection")

// Report is called after each response with how far a server's clock is ahead of the reference clock. crossed is true if the
// difference now exceeds Limit, or no longer does. It must not block.
type Report func(ahead time.Duration, crossed bool)

// Clock returns a server's time. It returns the base's time until the server has answered, and while the two differ by
// at most 2 s. A later answer that differs by more than Limit counts once all answers have agreed with it for 5 s.
type Clock struct {
	base, compared func() time.Time
	report         Report

	mu      sync.Mutex
	isKnown bool          // the server has answered
	ahead   time.Duration // of base
	isFar   bool
	doubted time.Time     // by base: since when answers disagree with ahead; zero if they agree
	doubt   time.Duration // the value of ahead according to those answers
}

// New returns the clock of a server. base measures the time between two answers. report receives the difference to the
// clock compared; nil for no reports.
func New(base, compared func() time.Time, report Report) *Clock {
	return &Clock{base: base, compared: compared, report: report}
}

// Steady returns a clock that starts at the machine's time and is not affected by later changes of the machine's clock.
func Steady() func() time.Time {
	began := time.Now()
	return func() time.Time { return began.Round(0).Add(time.Since(began)) }
}

// Now returns the server's time.
func (c *Clock) Now() time.Time { return c.base().Add(c.Ahead()) }

// Ahead returns how far the server's clock is ahead of base.
func (c *Clock) Ahead() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ahead
}

// Wrap returns a transport that reads the clock from answers.
func (c *Clock) Wrap(next http.RoundTripper) http.RoundTripper { return transport{next, c} }

type transport struct {
	next  http.RoundTripper
	clock *Clock
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	sent := t.clock.base()
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	at, err := http.ParseTime(resp.Header.Get("Date"))
	if err == nil && resp.StatusCode < http.StatusInternalServerError && resp.Header.Get("Age") == "" { // neither from a gateway nor from a cache
		t.clock.note(at, sent, t.clock.base())
	}
	return resp, nil
}

// note processes an answer with a time by the server's clock, between two times by base.
func (c *Clock) note(at, sent, received time.Time) {
	least, most := at.Sub(received), at.Add(time.Second).Sub(sent)
	c.mu.Lock()
	c.adjust(least, most, received)
	offset := received.Add(c.ahead).Sub(c.compared().Round(0))
	wasFar := c.isFar
	c.isFar = offset.Abs() > Limit
	crossed := c.isFar != wasFar
	c.mu.Unlock()
	if c.report != nil {
		c.report(offset, crossed)
	}
}

// adjust moves ahead into the range of two values, if it is outside and the answer, received at a time by base, is
// credible.
func (c *Clock) adjust(least, most time.Duration, received time.Time) {
	agrees := func(ahead time.Duration) bool { return least-tolerance <= ahead && ahead <= most+tolerance }
	next := min(max(0, least), most)
	if next.Abs() <= tolerance {
		next = 0
	}
	switch {
	case agrees(c.ahead):
		c.doubted = time.Time{}
	case !c.isKnown, (next - c.ahead).Abs() <= Limit, !c.doubted.IsZero() && agrees(c.doubt) && received.Sub(c.doubted) >= confirmAfter:
		c.ahead, c.doubted = next, time.Time{}
	case c.doubted.IsZero() || !agrees(c.doubt):
		c.doubted, c.doubt = received, next
	}
	c.isKnown = true
}
