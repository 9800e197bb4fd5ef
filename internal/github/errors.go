// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/corral-dev/corral/internal/wording"
)

// Kind says what an Error means to a caller.
type Kind string

// Kinds of errors.
const (
	// KindNotFound: what was asked for isn't there.
	KindNotFound Kind = "NotFound"
	// KindExists: a scale set of that name is in the runner group already.
	KindExists Kind = "Exists"
	// KindRunnerExists: a runner of that name is registered already.
	KindRunnerExists Kind = "RunnerExists"
	// KindJobStillRunning: a runner can't be removed because it has a job.
	KindJobStillRunning Kind = "JobStillRunning"
	// KindRunnerGroupNotFound: no runner group of that name is visible.
	KindRunnerGroupNotFound Kind = "RunnerGroupNotFound"
	// KindSessionConflict: the scale set has a message session already; Owner has it.
	KindSessionConflict Kind = "SessionConflict"
	// KindUnauthorized: GitHub answers 401, also with fresh tokens.
	KindUnauthorized Kind = "Unauthorized"
	// KindForbidden: the credentials are good but lack a right.
	KindForbidden Kind = "Forbidden"
	// KindRateLimited: GitHub asks to come back later; RetryAfter says when.
	KindRateLimited Kind = "RateLimited"
	// KindUnavailable: GitHub couldn't be reached, took too long or answered 5xx.
	KindUnavailable Kind = "Unavailable"
	// KindUnexpected: an answer that none of the other kinds covers.
	KindUnexpected Kind = "Unexpected"
)

// KindOfStatus returns what an HTTP status means whatever was asked; 0 is no answer.
func KindOfStatus(status int) Kind {
	switch {
	case status == 0, status >= http.StatusInternalServerError, status == http.StatusRequestTimeout:
		return KindUnavailable
	case status == http.StatusUnauthorized:
		return KindUnauthorized
	case status == http.StatusForbidden:
		return KindForbidden
	case status == http.StatusNotFound:
		return KindNotFound
	}
	return KindUnexpected
}

// Error is every error that a client of GitHub returns.
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
	// Message is what GitHub said, or why it wasn't asked.
	Message string
	// Next is when GitHub is called again, if no request was sent, as it asked to wait or doesn't answer.
	Next time.Time
	// Silent is true if a request was sent and not even the header of an answer came.
	Silent bool
	// Err is the error of the library that made the call; nil for none.
	Err error
}

// NewError makes an Error of what was tried, GitHub's status (0 for no answer), how long it asks to wait, and what it
// said, of which 500 bytes are kept.
func NewError(kind Kind, doing string, status int, retryAfter time.Duration, message string, err error) *Error {
	return &Error{Kind: kind, Doing: doing, Status: status, RetryAfter: retryAfter, Message: Excerpt(message), Silent: status == 0, Err: err}
}

// maxExcerpt bounds what of an answer is repeated, in bytes.
const maxExcerpt = 500

// Excerpt returns the first 500 bytes of what GitHub said: more of it isn't repeated.
func Excerpt(message string) string { return wording.Truncate(message, maxExcerpt) }

// Error tells what was tried, what GitHub said, and the ids its support asks for.
func (e *Error) Error() string {
	return e.Doing + ": " + e.cause() + e.passing()
}

func (e *Error) cause() string {
	switch {
	case e.Status >= http.StatusMultipleChoices && e.Message != "":
		return fmt.Sprintf("GitHub answered %d: %s", e.Status, e.Message)
	case e.Status >= http.StatusMultipleChoices:
		return fmt.Sprintf("GitHub answered %d", e.Status)
	case e.Message != "" || e.Err == nil:
		return e.Message
	}
	return e.Err.Error()
}

// passing is what differs each time.
func (e *Error) passing() string {
	var b strings.Builder
	if !e.Next.IsZero() {
		fmt.Fprintf(&b, " (next try %s)", e.Next.UTC().Format(wording.Clock))
	}
	if e.ActivityID != "" {
		fmt.Fprintf(&b, " (ActivityId %s)", e.ActivityID)
	}
	if e.RequestID != "" {
		fmt.Fprintf(&b, " (X-GitHub-Request-Id %s)", e.RequestID)
	}
	return b.String()
}

// Summary returns an error's text without ids and times that differ each time: for
// conditions, which would change with each attempt otherwise.
func Summary(err error) string {
	if e := new(Error); errors.As(err, &e) {
		return strings.Replace(err.Error(), e.passing(), "", 1)
	}
	return err.Error()
}

// Summarize returns an error with the text of Summary.
func Summarize(err error) error { return summarized{err} }

type summarized struct{ err error }

func (s summarized) Error() string { return Summary(s.err) }
func (s summarized) Unwrap() error { return s.err }

// CodeOf returns the HTTP status that keeps GitHub from being used; 0 if there was no answer.
func CodeOf(err error) int {
	e := new(Error)
	switch {
	case !errors.As(err, &e):
		return 0
	case e.Kind == KindRateLimited && e.Status == 0: // it isn't called, as it asked before
		return http.StatusTooManyRequests
	}
	return e.Status
}

// Unwrap returns the library's error.
func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of an Error, or "" for another error.
func KindOf(err error) Kind {
	if e := new(Error); errors.As(err, &e) {
		return e.Kind
	}
	return ""
}

// IsNotFound reports whether what was asked for isn't there.
func IsNotFound(err error) bool { return KindOf(err) == KindNotFound }

// IsRunnerExists reports whether a runner of that name is registered already.
func IsRunnerExists(err error) bool { return KindOf(err) == KindRunnerExists }

// IsJobStillRunning reports whether the runner has a job.
func IsJobStillRunning(err error) bool { return KindOf(err) == KindJobStillRunning }

// IsRunnerGroupNotFound reports whether no runner group of that name is visible.
func IsRunnerGroupNotFound(err error) bool { return KindOf(err) == KindRunnerGroupNotFound }

// IsUnauthorized reports whether GitHub refuses the credentials.
func IsUnauthorized(err error) bool { return KindOf(err) == KindUnauthorized }

// IsForbidden reports whether the credentials lack a right.
func IsForbidden(err error) bool { return KindOf(err) == KindForbidden }

// IsUnavailable reports whether GitHub couldn't be reached, took too long or answered 5xx.
func IsUnavailable(err error) bool { return KindOf(err) == KindUnavailable }

// IsSessionConflict reports whether another session is open, and whose: owner is empty
// when GitHub didn't say.
func IsSessionConflict(err error) (owner string, yes bool) {
	e := new(Error)
	if !errors.As(err, &e) || e.Kind != KindSessionConflict {
		return "", false
	}
	return e.Owner, true
}

// IsRateLimited reports whether GitHub asks to come back later, and after how long; 0
// when it didn't say.
func IsRateLimited(err error) (retryAfter time.Duration, yes bool) {
	after, away := ComeBack(err)
	return after, away && !IsUnavailable(err)
}

// ComeBack reports whether GitHub is away or asks to be asked again later, and after how
// long at the earliest; 0 when it didn't say.
func ComeBack(err error) (after time.Duration, away bool) {
	e := new(Error)
	if !errors.As(err, &e) || e.Kind != KindUnavailable && e.Kind != KindRateLimited {
		return 0, false
	}
	return e.RetryAfter, true
}

// MaxRetryAfter bounds how long GitHub's word to wait is taken for: the hour of the primary rate limit is the longest.
const MaxRetryAfter = time.Hour

// SecondaryRetry is how long to wait at a secondary rate limit if GitHub doesn't say: "at least one minute", says its page on rate limits.
const SecondaryRetry = time.Minute

// Bounded is how long GitHub is left alone that asks for so long.
func Bounded(after time.Duration) time.Duration { return min(MaxRetryAfter, max(0, after)) }

// RetryAfter reads Retry-After (seconds or a date), else the reset of the primary rate limit. It is between 0 and
// MaxRetryAfter; 0 when GitHub didn't say.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	value := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(value); err == nil || errors.Is(err, strconv.ErrRange) { // of a number out of range it is the nearest
		return Bounded(time.Duration(max(0, min(seconds, 1<<20))) * time.Second)
	}
	if at, err := http.ParseTime(value); err == nil {
		return Bounded(at.Sub(now))
	}
	reset, err := strconv.ParseInt(h.Get("X-Ratelimit-Reset"), 10, 64)
	if err != nil || h.Get("X-Ratelimit-Remaining") != "0" {
		return 0
	}
	return Bounded(time.Unix(max(now.Unix(), min(reset, now.Unix()+1<<20)), 0).Sub(now))
}

// AsksToWait reports whether an answer asks to come back later. GitHub says so with 403, too:
// https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api
func AsksToWait(status int, h http.Header, message string) bool {
	if status != http.StatusForbidden {
		return status == http.StatusTooManyRequests
	}
	return h.Get("Retry-After") != "" || h.Get("X-Ratelimit-Remaining") == "0" || IsSecondaryLimit(message)
}

// IsSecondaryLimit reports whether GitHub says that too many calls came at once.
func IsSecondaryLimit(message string) bool {
	message = strings.ToLower(message)
	return strings.Contains(message, "secondary rate limit") || strings.Contains(message, "abuse detection")
}
