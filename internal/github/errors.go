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

// Kind classifies an Error for callers.
type Kind string

// Kinds of errors.
const (
	// KindNotFound: the requested object does not exist.
	KindNotFound Kind = "NotFound"
	// KindExists: the runner group already has a scale set with this name.
	KindExists Kind = "Exists"
	// KindRunnerExists: a runner with this name is already registered.
	KindRunnerExists Kind = "RunnerExists"
	// KindJobStillRunning: the runner cannot be removed because it is running a job.
	KindJobStillRunning Kind = "JobStillRunning"
	// KindRunnerGroupNotFound: no runner group with this name is visible.
	KindRunnerGroupNotFound Kind = "RunnerGroupNotFound"
	// KindSessionConflict: the scale set already has a message session, which belongs to Owner.
	KindSessionConflict Kind = "SessionConflict"
	// KindUnauthorized: GitHub answers 401 even with new tokens.
	KindUnauthorized Kind = "Unauthorized"
	// KindForbidden: the credentials are valid but do not have the permission.
	KindForbidden Kind = "Forbidden"
	// KindRateLimited: GitHub asks the client to wait. RetryAfter is the time; 0 if GitHub did not say.
	KindRateLimited Kind = "RateLimited"
	// KindUnavailable: GitHub is unreachable, timed out or answered 5xx.
	KindUnavailable Kind = "Unavailable"
	// KindUnexpected: any other answer.
	KindUnexpected Kind = "Unexpected"
)

// KindOfStatus returns the kind of an HTTP status for any call; status 0 means no answer.
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

// Error is the type of every error that a client of GitHub returns.
type Error struct {
	Kind Kind
	// Doing describes the call, for example "creating scale set \"linux\"".
	Doing string
	// Status is the HTTP status; 0 if there was no answer.
	Status int
	// Owner is the owner of the conflicting session (KindSessionConflict); empty if GitHub did not name it.
	Owner string
	// RetryAfter is how long GitHub asks to wait, or how long Corral pauses its calls because GitHub does not answer; 0
	// if neither applies.
	RetryAfter time.Duration
	// ActivityID and RequestID are the ids that GitHub's support asks for.
	ActivityID, RequestID string
	// Message is GitHub's error message, or the reason why no request was sent.
	Message string
	// Next is the time of the next attempt. The scale-set client sets it if it sent no request, because GitHub asked to
	// wait or does not answer.
	Next time.Time
	// Silent is true if not even the header of an answer arrived. NewError sets it for every error with status 0, even
	// if no request was sent.
	Silent bool
	// Err is the error of the library that made the call, or nil.
	Err error
}

// NewError returns an Error. A status of 0 means no answer. The message is truncated to 500 bytes.
func NewError(kind Kind, doing string, status int, retryAfter time.Duration, message string, err error) *Error {
	return &Error{Kind: kind, Doing: doing, Status: status, RetryAfter: retryAfter, Message: Excerpt(message), Silent: status == 0, Err: err}
}

// maxExcerpt is the maximum number of bytes of an answer that errors repeat.
const maxExcerpt = 500

// Excerpt returns the first 500 bytes of GitHub's message.
func Excerpt(message string) string { return wording.Truncate(message, maxExcerpt) }

// Error returns the call, GitHub's message, and the ids that GitHub's support asks for.
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

// passing returns the part of the text that differs with each attempt.
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

// Summary returns the text of an error without the ids and times that differ with each attempt. Conditions use it, so
// that they do not change with every retry.
func Summary(err error) string {
	if e := new(Error); errors.As(err, &e) {
		return strings.Replace(err.Error(), e.passing(), "", 1)
	}
	return err.Error()
}

// Summarize wraps an error so that its text is its Summary.
func Summarize(err error) error { return summarized{err} }

type summarized struct{ err error }

func (s summarized) Error() string { return Summary(s.err) }
func (s summarized) Unwrap() error { return s.err }

// CodeOf returns the HTTP status of a failed call; 0 if there was no answer. It returns 429 for a call that was not
// sent because GitHub had asked to wait.
func CodeOf(err error) int {
	e := new(Error)
	switch {
	case !errors.As(err, &e):
		return 0
	case e.Kind == KindRateLimited && e.Status == 0: // not sent, because an earlier answer asked to wait
		return http.StatusTooManyRequests
	}
	return e.Status
}

// Unwrap returns the library's error.
func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of an Error, or "" for any other error.
func KindOf(err error) Kind {
	if e := new(Error); errors.As(err, &e) {
		return e.Kind
	}
	return ""
}

// IsNotFound reports whether the requested object does not exist.
func IsNotFound(err error) bool { return KindOf(err) == KindNotFound }

// IsRunnerExists reports whether a runner with this name is already registered.
func IsRunnerExists(err error) bool { return KindOf(err) == KindRunnerExists }

// IsJobStillRunning reports whether the runner is running a job.
func IsJobStillRunning(err error) bool { return KindOf(err) == KindJobStillRunning }

// IsRunnerGroupNotFound reports whether no runner group with this name is visible.
func IsRunnerGroupNotFound(err error) bool { return KindOf(err) == KindRunnerGroupNotFound }

// IsUnauthorized reports whether GitHub refuses the credentials.
func IsUnauthorized(err error) bool { return KindOf(err) == KindUnauthorized }

// IsForbidden reports whether the credentials do not have the permission.
func IsForbidden(err error) bool { return KindOf(err) == KindForbidden }

// IsUnavailable reports whether GitHub is unreachable, timed out or answered 5xx.
func IsUnavailable(err error) bool { return KindOf(err) == KindUnavailable }

// IsSessionConflict reports whether the scale set already has a session. The owner is empty if GitHub did not name it.
func IsSessionConflict(err error) (owner string, yes bool) {
	e := new(Error)
	if !errors.As(err, &e) || e.Kind != KindSessionConflict {
		return "", false
	}
	return e.Owner, true
}

// IsRateLimited reports whether GitHub asks to wait, and for how long; 0 if it did not say.
func IsRateLimited(err error) (retryAfter time.Duration, yes bool) {
	after, away := ComeBack(err)
	return after, away && !IsUnavailable(err)
}

// ComeBack reports whether GitHub is unavailable or asks to wait, and the shortest time to wait; 0 if unknown.
func ComeBack(err error) (after time.Duration, away bool) {
	e := new(Error)
	if !errors.As(err, &e) || e.Kind != KindUnavailable && e.Kind != KindRateLimited {
		return 0, false
	}
	return e.RetryAfter, true
}

// MaxRetryAfter is the longest wait that Corral accepts from GitHub. The primary rate limit asks for an hour at most.
const MaxRetryAfter = time.Hour

// SecondaryRetry is the wait after a secondary rate limit if GitHub gives none. GitHub's documentation asks for "at
// least one minute".
const SecondaryRetry = time.Minute

// Bounded limits a wait to between 0 and MaxRetryAfter.
func Bounded(after time.Duration) time.Duration { return min(MaxRetryAfter, max(0, after)) }

// RetryAfter reads the Retry-After header (seconds or a date), or else the reset time of the primary rate limit. The
// result is between 0 and MaxRetryAfter; 0 if GitHub did not say.
func RetryAfter(h http.Header, now time.Time) time.Duration {
	value := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(value); err == nil || errors.Is(err, strconv.ErrRange) { // Atoi returns the nearest number if it is out of range
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

// AsksToWait reports whether an answer asks the client to wait. GitHub does so with status 403, too:
// https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api
func AsksToWait(status int, h http.Header, message string) bool {
	if status != http.StatusForbidden {
		return status == http.StatusTooManyRequests
	}
	return h.Get("Retry-After") != "" || h.Get("X-Ratelimit-Remaining") == "0" || IsSecondaryLimit(message)
}

// IsSecondaryLimit reports whether a message is about the secondary rate limit.
func IsSecondaryLimit(message string) bool {
	message = strings.ToLower(message)
	return strings.Contains(message, "secondary rate limit") || strings.Contains(message, "abuse detection")
}
