// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package clock derives a server's clock from the Date header of the server's responses to regular requests.
package clock

import (
	"net/http"
	"sync"
	"time"

	"github.com/corral-dev/corral/internal/meter"
)

const (
	// tolerance is the largest clock difference that counts as zero, because the Date header has a resolution of one second and
	// responses take time to arrive.
	tolerance = 2 * time.Second
	// Limit is the difference above which a clock is reported as wrong.
	Limit = 30 * time.Second
	// confirmAfter is how long all responses must agree on a new difference before it counts, if it deviates from the current
	// one by more than Limit. A single response may come from a gateway, or from a server whose clock is wrong.
	confirmAfter = 5 * time.Second
	// crossAgain is the minimum time between two crossings of Limit, because a server can send any dates, and each crossing
	// is logged and wakes a connection.
	crossAgain = time.Minute
)

// Offsets is the metric of the offsets of servers' clocks. It is positive for a clock that is ahead.
var Offsets = meter.Gauges("corral_clock_offset_seconds",
	"Offset of the API server's clock from this process's clock or, by connection, of GitHub's clock from the API server's. Positive means that the first clock is ahead.", "server", "connection")

// Report receives, after each response whose Date header is used, how far the server's clock is ahead of the reference
// clock. crossed is true if the difference exceeds Limit and did not before, or the reverse, at most once a minute. A Report
// must not block, because the request waits for it.
type Report func(ahead time.Duration, crossed bool)

// Clock returns a server's time. It returns the time of base until the server has responded, and while the two differ by at
// most 2 s. The first difference counts immediately, and so does a later change of at most Limit. A larger change counts
// only after all responses have agreed on it for 5 s.
type Clock struct {
	base, compared func() time.Time
	report         Report

	mu      sync.Mutex
	isKnown bool          // the server has responded
	ahead   time.Duration // how far the server's clock is ahead of base
	isFar   bool
	crossed time.Time     // when isFar last changed, by base
	doubted time.Time     // when responses began to disagree with ahead, by base; zero if they agree
	doubt   time.Duration // the value of ahead that these responses suggest
}

// New returns the clock of a server. base is the local clock that measures the time between a request and its response.
// report receives the offset of the server's clock from the clock compared; it may be nil.
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

// Wrap returns a transport that sends requests with next, and derives the server's time from the responses.
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
	if err == nil && resp.StatusCode < http.StatusInternalServerError && resp.Header.Get("Age") == "" { // the response comes neither from a gateway nor from a cache
		t.clock.note(at, sent, t.clock.base())
	}
	return resp, nil
}

// note processes the Date header of a response. sent is when the request was sent, and received when the response arrived,
// both by base.
func (c *Clock) note(at, sent, received time.Time) {
	least, most := at.Sub(received), at.Add(time.Second).Sub(sent)
	c.mu.Lock()
	c.adjust(least, most, received)
	offset := received.Add(c.ahead).Sub(c.compared().Round(0))
	isFar := offset.Abs() > Limit
	crossed := isFar != c.isFar && received.Sub(c.crossed).Abs() >= crossAgain // base jumps back when it is corrected
	if crossed {
		c.isFar, c.crossed = isFar, received
	}
	c.mu.Unlock()
	if c.report != nil {
		c.report(offset, crossed)
	}
}

// adjust moves ahead into the range from least to most, which a response allows, unless ahead is in that range already or
// the response must be confirmed by later ones. received is when the response arrived, by base.
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
