// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	gogithub "github.com/google/go-github/v89/github"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/neterr"
)

// Error is the reason why a connection does not work.
type Error struct {
	// Reason is the reason for the connection's condition: InvalidSpec, CredentialsRefused, PermissionMissing,
	// ScopeNotFound or GitHubUnavailable.
	Reason string
	// RetryAfter is how long GitHub asks to wait; 0 if it did not say.
	RetryAfter time.Duration
	// Code is the HTTP status of GitHub's answer if the reason is GitHubUnavailable; 0 if there was no answer.
	Code int

	message string
	err     error
}

// Error returns the problem and GitHub's message.
func (e *Error) Error() string {
	if e.err == nil {
		return e.message
	}
	if answer := new(gogithub.ErrorResponse); errors.As(e.err, &answer) && answer.Response != nil { // without the request's URL
		return fmt.Sprintf("%s: GitHub answered %d: %s", e.message, answer.Response.StatusCode, github.Excerpt(answer.Message))
	}
	return e.message + ": " + e.err.Error()
}

// Unwrap returns the underlying error.
func (e *Error) Unwrap() error { return e.err }

func newError(reason string, err error, format string, args ...any) *Error {
	return &Error{Reason: reason, err: err, message: fmt.Sprintf(format, args...)}
}

// unavailable returns an error if a failure is not related to the credentials: no answer, 5xx or a rate limit.
// Otherwise it returns nil.
func unavailable(resp *gogithub.Response, err error, now time.Time) *Error {
	code := statusOf(resp)
	limited := newError(v1alpha1.GitHubUnavailableReason, nil, "GitHub answered %d: it limits the rate of requests", code) // go-github's text contains a countdown
	limited.Code = code
	primary, secondary := new(gogithub.RateLimitError), new(gogithub.AbuseRateLimitError)
	switch {
	case errors.As(err, &primary):
		limited.RetryAfter = github.Bounded(primary.Rate.Reset.Sub(now))
		return limited
	case errors.As(err, &secondary):
		limited.RetryAfter = github.SecondaryRetry
		if after := secondary.RetryAfter; after != nil {
			limited.RetryAfter = github.Bounded(*after)
		}
		return limited
	case code == http.StatusTooManyRequests:
		limited.RetryAfter = github.RetryAfter(resp.Header, now)
		return limited
	case github.KindOfStatus(code) == github.KindUnavailable:
		return silent(code, err)
	}
	return nil
}

// silent returns the error for a missing answer (code 0), or for an answer such as 5xx that does not depend on the
// request.
func silent(code int, err error) *Error {
	e := newError(v1alpha1.GitHubUnavailableReason, nil, "GitHub answered %d", code)
	if code == 0 {
		e = newError(v1alpha1.GitHubUnavailableReason, nil, "GitHub didn't answer (%s)", neterr.NoAnswer(err))
	}
	e.Code = code
	return e
}

func statusOf(resp *gogithub.Response) int {
	if resp == nil || resp.Response == nil {
		return 0
	}
	return resp.StatusCode
}
