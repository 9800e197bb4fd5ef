// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/corral-dev/corral/internal/github"
)

// newError classifies an error of the official client by the last answer that the client received.
func newError(doing string, x *exchange, err error, now time.Time) *github.Error {
	kind := classify(x, err)
	if errors.Is(err, errPartial) || isTooLarge(err) {
		kind = github.KindUnavailable
	}
	e := github.NewError(kind, doing, x.status, 0, x.explanation(), brief(err))
	e.Silent, e.ActivityID, e.RequestID = x.silent, x.header.Get("ActivityId"), x.header.Get("X-GitHub-Request-Id")
	if e.Kind == github.KindSessionConflict {
		e.Owner = sessionOwner(x.message)
	}
	if e.Kind == github.KindRateLimited || e.Kind == github.KindUnavailable {
		e.RetryAfter = github.RetryAfter(x.header, now)
	}
	if e.Kind == github.KindRateLimited && e.RetryAfter == 0 && github.IsSecondaryLimit(x.message) {
		e.RetryAfter = github.SecondaryRetry
	}
	return e
}

// brief returns an error with a short text. The official client quotes whole answers in its errors, and the state of a
// session keeps its last error.
func brief(err error) error {
	text := err.Error()
	short := github.Excerpt(text)
	if short == text {
		return err
	}
	return quoted{short, cause(err)}
}

// quoted is an error that quoted a long answer.
type quoted struct {
	text  string
	cause error // nil if its text is long, too
}

func (q quoted) Error() string { return q.text }
func (q quoted) Unwrap() error { return q.cause }

// cause returns the innermost error of a chain, or nil if its text is long.
func cause(err error) error {
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	text := err.Error()
	if github.Excerpt(text) != text {
		return nil
	}
	return err
}

func isTooLarge(err error) bool { return errors.As(err, new(github.TooLarge)) }

func classify(x *exchange, err error) github.Kind {
	kind := github.KindOfStatus(x.status)
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), kind == github.KindUnavailable:
		return github.KindUnavailable
	case github.AsksToWait(x.status, x.header, x.message):
		return github.KindRateLimited
	case x.endpoint == endpointRunnerRegistration:
		// GitHub refuses a registration token that is seconds old while its replicas catch up. A retry helps.
		return github.KindUnavailable
	case x.endpoint.isToken() && kind == github.KindNotFound:
		return github.KindForbidden // the scale set itself may exist
	case x.endpoint.isToken(), kind == github.KindUnauthorized, kind == github.KindForbidden:
		return kind
	case strings.Contains(x.typeName, "JobStillRunningException"):
		return github.KindJobStillRunning
	case kind == github.KindNotFound && !x.tellsAbsence():
		return github.KindUnexpected
	case x.status == http.StatusConflict, x.tellsPresence():
		return classifyConflict(x)
	}
	return kind
}

// tellsAbsence reports whether a 404 means that the scale set or the runner does not exist. For polls and refreshes, a
// 404 may instead be about the session or its queue. For a runner or a group with an unknown name, GitHub returns an
// empty list; only a server without scale sets answers 404 there.
func (x *exchange) tellsAbsence() bool {
	switch x.endpoint {
	case endpointMessagePoll, endpointSessionRefresh:
		return strings.Contains(x.typeName, "RunnerScaleSetNotFoundException")
	case endpointRunnerFind, endpointRunnerGroup:
		return false
	}
	return true
}

// tellsPresence reports whether a 400 means that a scale set with this name already exists. GARM has observed this
// answer instead of a 409.
func (x *exchange) tellsPresence() bool {
	if x.status != http.StatusBadRequest || x.endpoint != endpointScaleSetCreate {
		return false
	}
	return strings.Contains(x.typeName, "Exists") || strings.Contains(strings.ToLower(x.message), "already exists")
}

func classifyConflict(x *exchange) github.Kind {
	switch x.endpoint {
	case endpointSessionCreate:
		return github.KindSessionConflict
	case endpointGenerateJIT:
		return github.KindRunnerExists
	case endpointScaleSetCreate, endpointScaleSetUpdate:
		return github.KindExists
	}
	return github.KindUnexpected
}

// sessionOwner extracts the owner from "The runner scale set NAME already has an active session for owner OWNER."
func sessionOwner(message string) string {
	_, owner, found := strings.Cut(message, "active session for owner ")
	if !found {
		return ""
	}
	return strings.TrimSuffix(strings.TrimSpace(owner), ".")
}
