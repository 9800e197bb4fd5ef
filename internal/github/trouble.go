// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/corral-dev/corral/internal/clock"
)

const (
	// A connection is in trouble after troubleCalls failures in a row over at least troubleTime, because GitHub
	// sometimes answers a single call with 500. If GitHub asks to wait longer than troubleRetry, one failure is enough.
	troubleCalls, troubleTime = 3, 10 * time.Second
	// troubleLife is how long a failure counts if no other call of its class follows.
	troubleLife = 90 * time.Second
	// troubleRetry is the longest time between two attempts by any caller, unless GitHub asks for more.
	troubleRetry = 30 * time.Second
	// refusalPause is the minimum time between two refusals of credentials that trigger a check.
	refusalPause = time.Minute
)

// Trouble describes failing calls of one class.
type Trouble struct {
	// Code is the status of the last answer; 0 if there was none.
	Code int
	// Fault is the reason why the last answer is unusable: TooLarge or ForeignHost; nil for neither.
	Fault error
	// Next is when the next call of the class is expected at the latest.
	Next time.Time
}

// failures counts the consecutive failed calls of a class.
type failures struct {
	first, last, next time.Time
	calls, code       int
	fault             error
	isKnown           bool // the functions that OnTrouble registered have been called
}

// isTrouble reports whether the last failure is recent, and either there were enough failures or GitHub asked for a
// long wait.
func (f *failures) isTrouble(now time.Time) bool {
	wait := f.next.Sub(f.last)
	isSure := f.calls >= troubleCalls && f.last.Sub(f.first) >= troubleTime || wait > troubleRetry
	return isSure && now.Sub(f.last) < max(troubleLife, wait+troubleRetry)
}

// OnTrouble registers a function that is called with a connection's key when its trouble begins or ends, when GitHub
// refuses its credentials, and when GitHub's clock begins or ceases to differ. The function must not block.
func (c *Connections) OnTrouble(changed func(key string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onTrouble = append(c.onTrouble, changed)
}

// Trouble returns a connection's trouble; false if there is none. If several classes of calls are in trouble, it
// returns the trouble that began first.
func (c *Connections) Trouble(key string) (t Trouble, yes bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var first time.Time
	for _, f := range c.failing[key] {
		if f.isTrouble(c.now()) && (!yes || f.first.Before(first)) {
			t, first, yes = Trouble{Code: f.code, Fault: f.fault, Next: f.next}, f.first, true
		}
	}
	return t, yes
}

// answered records the result of a call of a class: GitHub's status (0 for no answer), how long GitHub asks to wait,
// and why the answer is unusable.
func (c *Connections) answered(key, class string, status int, header http.Header, fault error) {
	c.mu.Lock()
	changed := c.count(key, class, status, header, fault)
	c.mu.Unlock()
	if changed {
		c.wake(key)
	}
}

// wake calls the functions that OnTrouble registered.
func (c *Connections) wake(key string) {
	c.mu.Lock()
	all := c.onTrouble
	c.mu.Unlock()
	for _, f := range all {
		f(key)
	}
}

// count updates the failures of a class by the result of a call. It reports whether trouble began or ended.
func (c *Connections) count(key, class string, status int, header http.Header, fault error) (changed bool) {
	f, now := c.failing[key][class], c.now()
	if fault == nil && KindOfStatus(status) != KindUnavailable && !AsksToWait(status, header, "") {
		delete(c.failing[key], class)
		if status >= http.StatusOK && status < http.StatusMultipleChoices {
			c.accepted[key] = now
		}
		return f != nil && f.isKnown
	}
	if f == nil || now.Sub(f.last) >= max(troubleLife, f.next.Sub(f.last)+troubleRetry) {
		if c.failing[key] == nil {
			c.failing[key] = map[string]*failures{}
		}
		f = &failures{first: now}
		c.failing[key][class] = f
	}
	f.last, f.code, f.fault = now, status, fault
	f.next = now.Add(max(troubleRetry, RetryAfter(header, c.clock(key).Now())))
	f.calls++
	changed = !f.isKnown && f.isTrouble(now)
	f.isKnown = f.isKnown || changed
	return changed
}

// refuse records that GitHub refused a connection's credentials, or the permission to register runners.
func (c *Connections) refuse(key string) {
	c.mu.Lock()
	isNews := c.now().Sub(c.refused[key]) >= refusalPause
	if isNews {
		c.refused[key] = c.now()
	}
	c.mu.Unlock()
	if isNews {
		c.wake(key)
	}
}

// Refused returns when GitHub last refused a connection's credentials, which triggers a check; the zero time for never.
func (c *Connections) Refused(key string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused[key]
}

// Accepted returns when a call of a connection last succeeded; the zero time for never.
func (c *Connections) Accepted(key string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.accepted[key]
}

// Server is the label value of GitHub's clocks in the metrics of package clock.
const Server = "github"

// clock returns GitHub's clock, derived from the answers to a connection's clients. c.mu must be held.
func (c *Connections) clock(key string) *clock.Clock {
	if c.clocks[key] == nil {
		c.clocks[key] = clock.New(c.now, c.now, func(ahead time.Duration, crossed bool) {
			if !c.isWatched(key) {
				return
			}
			c.Report(key, ahead, crossed)
			if crossed {
				c.wake(key)
			}
		})
	}
	return c.clocks[key]
}

// Ahead returns how far GitHub's clock is ahead of the local clock, derived from the answers to a connection's clients.
func (c *Connections) Ahead(key string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clock(key).Ahead()
}

// Watch returns the options for a connection's client, so that its calls update GitHub's clock and record trouble and
// refused credentials.
func (c *Connections) Watch(o Options, key string) Options {
	c.mu.Lock()
	o.clock = c.clock(key)
	c.mu.Unlock()
	o.memory, o.allowances, o.tenant = c.memory, c.allowances, tenant(key)
	o.answered = func(class string, status int, header http.Header, fault error) {
		if c.isWatched(key) {
			c.answered(key, class, status, header, fault)
		}
	}
	o.refused = func() {
		if c.isWatched(key) {
			c.refuse(key)
		}
	}
	return o
}

// isWatched reports whether Corral still keeps data about a connection. Answers to earlier calls can arrive after forget.
func (c *Connections) isWatched(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clocks[key] != nil
}

// NoteRefusal records an answer that refuses the credentials, or their permission to register runners. The scale-set
// client calls it for token calls only, because tokens that were requested with the credentials expire.
func (o Options) NoteRefusal(resp *http.Response) {
	if o.refused == nil || resp == nil {
		return
	}
	switch KindOfStatus(resp.StatusCode) {
	case KindUnauthorized, KindForbidden:
		if !AsksToWait(resp.StatusCode, resp.Header, "") {
			o.refused()
		}
	}
}

// Note records the result of a call of a class, unless its caller has canceled it.
func (o Options) Note(ctx context.Context, class string, resp *http.Response, err error) {
	foreign := ForeignHost{}
	switch {
	case o.answered == nil, err != nil && errors.Is(ctx.Err(), context.Canceled):
	case errors.As(err, &foreign):
		o.answered(class, http.StatusOK, nil, foreign) // an earlier answer led to that host
	case err != nil:
		o.answered(class, 0, nil, nil)
	default:
		o.answered(class, resp.StatusCode, withLimit(resp), nil)
	}
}

// NoteSize records whether a successful answer was too large. It counts as a class of its own: other answers do not end
// this trouble, and an answer of acceptable size does not prove that GitHub accepts the credentials.
func (o Options) NoteSize(class string, status int, large error) {
	switch {
	case o.answered == nil, status >= http.StatusMultipleChoices:
	case large == nil:
		o.answered(class+" size", http.StatusContinue, nil, nil)
	default:
		o.answered(class+" size", status, nil, large)
	}
}

// maxRead is how many bytes of an answer are read to find a message about a rate limit.
const maxRead = 16 << 10

// withLimit returns the header of an answer. If only the body mentions a secondary rate limit, it adds Retry-After.
func withLimit(resp *http.Response) http.Header {
	if resp.StatusCode != http.StatusForbidden || resp.Body == nil || AsksToWait(resp.StatusCode, resp.Header, "") {
		return resp.Header
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxRead)) // the next reader gets the error again
	resp.Body = readAgain{io.MultiReader(bytes.NewReader(text), resp.Body), resp.Body}
	if err != nil || !IsSecondaryLimit(string(text)) {
		return resp.Header
	}
	header := resp.Header.Clone()
	header.Set("Retry-After", strconv.Itoa(int(SecondaryRetry.Seconds())))
	return header
}

// readAgain is a body whose first part has already been read.
type readAgain struct {
	io.Reader
	io.Closer
}
