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
	// troubleCalls in a row have to fail, over no less than troubleTime, before a connection is in trouble: GitHub answers a single call
	// with 500 every now and then. If it asks to wait for longer than troubleRetry, one is enough.
	troubleCalls, troubleTime = 3, 10 * time.Second
	// troubleLife is how long a failure counts that no other call of its class followed.
	troubleLife = 90 * time.Second
	// troubleRetry is the longest time between two attempts of whoever calls, unless GitHub asked for more.
	troubleRetry = 30 * time.Second
	// refusalPause is the least time between two refusals of credentials that are looked into.
	refusalPause = time.Minute
)

// Trouble is what GitHub answers to the calls of a class, one after the other, instead of what it was asked for.
type Trouble struct {
	// Code of the last answer; 0 if there was none.
	Code int
	// Fault is why the last answer can't be used: TooLarge or ForeignHost; nil for neither.
	Fault error
	// Next is when such a call is made again at the latest.
	Next time.Time
}

// failures of the calls of a class, in a row.
type failures struct {
	first, last, next time.Time
	calls, code       int
	fault             error
	isKnown           bool // to those that OnTrouble named
}

// isTrouble reports whether they are many enough, or GitHub asked to wait for long, and not of the past.
func (f *failures) isTrouble(now time.Time) bool {
	wait := f.next.Sub(f.last)
	isSure := f.calls >= troubleCalls && f.last.Sub(f.first) >= troubleTime || wait > troubleRetry
	return isSure && now.Sub(f.last) < max(troubleLife, wait+troubleRetry)
}

// OnTrouble has a function called with a connection's key when its trouble begins and when it is over by an answer, when GitHub refuses its
// credentials, and when GitHub's clock begins or ceases to differ. It must not block.
func (c *Connections) OnTrouble(changed func(key string)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onTrouble = append(c.onTrouble, changed)
}

// Trouble returns what GitHub's trouble is on a connection, that which began first; false if there is none.
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

// answered takes in how a call of a class ended: with GitHub's status, 0 for no answer, how long GitHub asks to wait, and why
// the answer can't be used.
func (c *Connections) answered(key, class string, status int, header http.Header, fault error) {
	c.mu.Lock()
	changed := c.count(key, class, status, header, fault)
	c.mu.Unlock()
	if changed {
		c.wake(key)
	}
}

// wake calls those who asked for it with OnTrouble.
func (c *Connections) wake(key string) {
	c.mu.Lock()
	all := c.onTrouble
	c.mu.Unlock()
	for _, f := range all {
		f(key)
	}
}

// count reports whether a trouble began or ended.
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

// refuse takes in that GitHub refused a connection's credentials, or the right to register runners.
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

// Refused is when GitHub refused a connection's credentials to one of its clients, which is to be looked into; the zero time for never.
func (c *Connections) Refused(key string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused[key]
}

// Accepted is when GitHub last did what one of a connection's clients asked for; the zero time for never.
func (c *Connections) Accepted(key string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.accepted[key]
}

// Server is the label of GitHub's clocks in metrics.
const Server = "github"

// clock returns GitHub's clock as the answers to a connection's clients show it. c.mu must be held.
func (c *Connections) clock(key string) *clock.Clock {
	if c.clocks[key] == nil {
		c.clocks[key] = clock.New(c.now, c.now, func(ahead time.Duration, crossed bool) {
			c.Report(key, ahead, crossed)
			if crossed {
				c.wake(key)
			}
		})
	}
	return c.clocks[key]
}

// Ahead returns how far GitHub's clock is ahead of ours, as the answers to a connection's clients show it.
func (c *Connections) Ahead(key string) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clock(key).Ahead()
}

// Watch returns the options of a connection's client, so that its calls show GitHub's clock, and say whether GitHub is in trouble, or refuses its
// credentials.
func (c *Connections) Watch(o Options, key string) Options {
	c.mu.Lock()
	o.clock = c.clock(key)
	c.mu.Unlock()
	o.memory, o.tenant = c.memory, tenant(key)
	o.answered = func(class string, status int, header http.Header, fault error) {
		c.answered(key, class, status, header, fault)
	}
	o.refused = func() { c.refuse(key) }
	return o
}

// NoteRefusal takes in an answer that GitHub gives by the credentials themselves, if it refuses them: tokens that are made of them end by
// themselves.
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

// Note takes in how a call of a class ended that whoever made it waited for.
func (o Options) Note(ctx context.Context, class string, resp *http.Response, err error) {
	foreign := ForeignHost{}
	switch {
	case o.answered == nil, err != nil && errors.Is(ctx.Err(), context.Canceled):
	case errors.As(err, &foreign):
		o.answered(class, http.StatusOK, nil, foreign) // there was an answer before, which led to that host
	case err != nil:
		o.answered(class, 0, nil, nil)
	default:
		o.answered(class, resp.StatusCode, withLimit(resp), nil)
	}
}

// NoteSize takes in whether something was too large in a good answer to a call of a class. It is counted apart: that there is an answer doesn't
// end this trouble, and that one fits says nothing of credentials.
func (o Options) NoteSize(class string, status int, large error) {
	switch {
	case o.answered == nil, status >= http.StatusMultipleChoices:
	case large == nil:
		o.answered(class+" size", http.StatusContinue, nil, nil)
	default:
		o.answered(class+" size", status, nil, large)
	}
}

// maxRead is how much of an answer is read, in bytes, to find what GitHub says of a limit.
const maxRead = 16 << 10

// withLimit returns the header of an answer, with Retry-After also if it's the body alone that tells of a secondary rate limit.
func withLimit(resp *http.Response) http.Header {
	if resp.StatusCode != http.StatusForbidden || resp.Body == nil || AsksToWait(resp.StatusCode, resp.Header, "") {
		return resp.Header
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxRead)) // an error comes again to who reads on
	resp.Body = readAgain{io.MultiReader(bytes.NewReader(text), resp.Body), resp.Body}
	if err != nil || !IsSecondaryLimit(string(text)) {
		return resp.Header
	}
	header := resp.Header.Clone()
	header.Set("Retry-After", strconv.Itoa(int(SecondaryRetry.Seconds())))
	return header
}

// readAgain is a body whose beginning was read.
type readAgain struct {
	io.Reader
	io.Closer
}
