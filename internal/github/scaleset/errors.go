// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/corral-dev/corral/internal/clip"
)

// Kind says what an Error means to a caller.
type Kind string

// Kinds of errors.
const (
	// KindNotFound is true when the scale set or runner isn't there.
	KindNotFound Kind = "NotFound"
	// KindExists is true when a scale set of that name is in the runner group already.
	KindExists Kind = "Exists"
	// KindRunnerExists is true when a runner of that name is registered already.
	KindRunnerExists Kind = "RunnerExists"
	// KindJobStillRunning is true when a runner can't be removed because it has a job.
	KindJobStillRunning Kind = "JobStillRunning"
	// KindRunnerGroupNotFound is true when no runner group of that name is visible.
	KindRunnerGroupNotFound Kind = "RunnerGroupNotFound"
	// KindSessionConflict is true when the scale set has a message session already; Owner has it.
	KindSessionConflict Kind = "SessionConflict"
	// KindUnauthorized is true when GitHub answers 401, also with fresh tokens.
	KindUnauthorized Kind = "Unauthorized"
	// KindForbidden is true when the credentials are good but lack a right.
	KindForbidden Kind = "Forbidden"
	// KindRateLimited is true when GitHub asks to come back later; RetryAfter says when.
	KindRateLimited Kind = "RateLimited"
	// KindUnavailable is true when GitHub couldn't be reached, took too long or answered 5xx.
	KindUnavailable Kind = "Unavailable"
	// KindUnexpected is true for an answer that none of the other kinds covers.
	KindUnexpected Kind = "Unexpected"
)

// Error is every error a Client returns.
type Error struct {
	Kind Kind
	// Doing is what was tried, as in "creating scale set \"linux\"".
	Doing string
	// Status is the HTTP status; 0 when there was no answer.
	Status int
	// Owner of the session that is in the way (KindSessionConflict); empty when GitHub didn't say.
	Owner string
	// RetryAfter is how long GitHub asks to wait, or how long it isn't called because it
	// doesn't answer; 0 when neither is so.
	RetryAfter time.Duration
	// ActivityID and RequestID are what GitHub's support asks for.
	ActivityID, RequestID string

	message  string
	silent   bool // there was no answer at all
	uncalled bool // GitHub was not called
	err      error
}

// NewError makes an Error for a caller of GitHub that isn't a Client: what was tried, GitHub's
// status (0 for no answer), how long it asks to wait, and what it said.
func NewError(kind Kind, doing string, status int, retryAfter time.Duration, message string, err error) *Error {
	return &Error{Kind: kind, Doing: doing, Status: status, RetryAfter: retryAfter, message: clip.Bytes(message, maxExplanation), silent: status == 0, err: err}
}

// Error tells what was tried, what GitHub said, and the ids its support asks for.
func (e *Error) Error() string {
	return e.Doing + ": " + e.cause() + e.passing()
}

func (e *Error) cause() string {
	switch {
	case e.Status >= http.StatusMultipleChoices && e.message != "":
		return fmt.Sprintf("GitHub answered %d: %s", e.Status, e.message)
	case e.Status >= http.StatusMultipleChoices:
		return fmt.Sprintf("GitHub answered %d", e.Status)
	case e.message != "" || e.err == nil:
		return e.message
	}
	return e.err.Error()
}

// passing is what differs each time.
func (e *Error) passing() string {
	var b strings.Builder
	if e.uncalled {
		fmt.Fprintf(&b, " (next attempt in %s)", e.RetryAfter.Round(time.Second))
	}
	if e.ActivityID != "" {
		fmt.Fprintf(&b, " (ActivityId %s)", e.ActivityID)
	}
	if e.RequestID != "" {
		fmt.Fprintf(&b, " (X-GitHub-Request-Id %s)", e.RequestID)
	}
	return b.String()
}

// Summary is an error's text without ids and times that differ each time: for
// conditions, which would change with each attempt otherwise.
func Summary(err error) string {
	if e := new(Error); errors.As(err, &e) {
		return strings.Replace(err.Error(), e.passing(), "", 1)
	}
	return err.Error()
}

// Unwrap returns the official client's error.
func (e *Error) Unwrap() error { return e.err }

// KindOf returns the kind of an error of this package, or "" for another.
func KindOf(err error) Kind {
	if e := new(Error); errors.As(err, &e) {
		return e.Kind
	}
	return ""
}

// IsNotFound says whether the scale set or runner isn't there.
func IsNotFound(err error) bool { return KindOf(err) == KindNotFound }

// IsExists says whether a scale set of that name is there already.
func IsExists(err error) bool { return KindOf(err) == KindExists }

// IsRunnerExists says whether a runner of that name is registered already.
func IsRunnerExists(err error) bool { return KindOf(err) == KindRunnerExists }

// IsJobStillRunning says whether the runner has a job.
func IsJobStillRunning(err error) bool { return KindOf(err) == KindJobStillRunning }

// IsRunnerGroupNotFound says whether no runner group of that name is visible.
func IsRunnerGroupNotFound(err error) bool { return KindOf(err) == KindRunnerGroupNotFound }

// IsUnauthorized says whether GitHub refuses the credentials.
func IsUnauthorized(err error) bool { return KindOf(err) == KindUnauthorized }

// IsForbidden says whether the credentials lack a right.
func IsForbidden(err error) bool { return KindOf(err) == KindForbidden }

// IsUnavailable says whether GitHub couldn't be reached, took too long or answered 5xx.
func IsUnavailable(err error) bool { return KindOf(err) == KindUnavailable }

// IsSessionConflict says whether another session is open, and whose: owner is empty
// when GitHub didn't say.
func IsSessionConflict(err error) (owner string, yes bool) {
	e := new(Error)
	if !errors.As(err, &e) || e.Kind != KindSessionConflict {
		return "", false
	}
	return e.Owner, true
}

// IsRateLimited says whether GitHub asks to come back later, and after how long; 0
// when it didn't say.
func IsRateLimited(err error) (retryAfter time.Duration, yes bool) {
	e := new(Error)
	if !errors.As(err, &e) || e.Kind != KindRateLimited {
		return 0, false
	}
	return e.RetryAfter, true
}

// newError judges the official client's error by the last answer it got.
func newError(doing string, x *exchange, err error, now time.Time) *Error {
	e := &Error{
		Kind: classify(x, err), Doing: doing, Status: x.status, message: x.explanation(), err: err, silent: x.silent,
		ActivityID: x.header.Get("ActivityId"), RequestID: x.header.Get("X-GitHub-Request-Id"),
	}
	if e.Kind == KindSessionConflict {
		e.Owner = sessionOwner(x.message)
	}
	if e.Kind == KindRateLimited || e.Kind == KindUnavailable {
		e.RetryAfter = retryAfter(x.header, now)
	}
	return e
}

func classify(x *exchange, err error) Kind {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), x.status == 0,
		x.status >= http.StatusInternalServerError, x.status == http.StatusRequestTimeout:
		return KindUnavailable
	case x.rateLimited():
		return KindRateLimited
	case x.endpoint.isToken():
		return classifyToken(x)
	case x.status == http.StatusUnauthorized:
		return KindUnauthorized
	case x.status == http.StatusForbidden:
		return KindForbidden
	case strings.Contains(x.typeName, "JobStillRunningException"):
		return KindJobStillRunning
	case x.status == http.StatusNotFound && x.tellsAbsence():
		return KindNotFound
	case x.status == http.StatusConflict:
		return classifyConflict(x)
	}
	return KindUnexpected
}

// classifyToken keeps a 404 of a token call apart from "the scale set is gone". The
// runner-registration call refuses a registration token that is seconds old while
// GitHub's replicas catch up: trying again helps.
func classifyToken(x *exchange) Kind {
	switch {
	case x.endpoint == endpointRunnerRegistration:
		return KindUnavailable
	case x.status == http.StatusUnauthorized:
		return KindUnauthorized
	case x.status == http.StatusForbidden, x.status == http.StatusNotFound:
		return KindForbidden
	}
	return KindUnexpected
}

// tellsAbsence says whether a 404 is about the scale set or runner, and not about the
// session or its queue.
func (x *exchange) tellsAbsence() bool {
	if x.endpoint == endpointMessagePoll || x.endpoint == endpointSessionRefresh {
		return strings.Contains(x.typeName, "RunnerScaleSetNotFoundException")
	}
	return true
}

func classifyConflict(x *exchange) Kind {
	switch x.endpoint {
	case endpointSessionCreate:
		return KindSessionConflict
	case endpointGenerateJIT:
		return KindRunnerExists
	case endpointScaleSetCreate, endpointScaleSetUpdate:
		return KindExists
	}
	return KindUnexpected
}

// sessionOwner reads the owner out of "The runner scale set NAME already has an
// active session for owner OWNER."
func sessionOwner(message string) string {
	_, owner, found := strings.Cut(message, "active session for owner ")
	if !found {
		return ""
	}
	return strings.TrimSuffix(strings.TrimSpace(owner), ".")
}

// retryAfter reads Retry-After (seconds or a date), else the primary rate limit's reset.
func retryAfter(h http.Header, now time.Time) time.Duration {
	value := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(value); err == nil {
		return max(0, time.Duration(seconds)*time.Second)
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, at.Sub(now))
	}
	if h.Get("X-Ratelimit-Remaining") != "0" {
		return 0
	}
	reset, err := strconv.ParseInt(h.Get("X-Ratelimit-Reset"), 10, 64)
	if err != nil {
		return 0
	}
	return max(0, time.Unix(reset, 0).Sub(now))
}

// ComeBack says whether GitHub is away or asks to be asked again later, and after how
// long at the earliest; 0 when it didn't say.
func ComeBack(err error) (after time.Duration, away bool) {
	e := new(Error)
	if !errors.As(err, &e) || e.Kind != KindUnavailable && e.Kind != KindRateLimited {
		return 0, false
	}
	return e.RetryAfter, true
}
