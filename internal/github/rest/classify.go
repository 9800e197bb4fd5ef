// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"errors"
	"net/http"
	"slices"
	"time"

	gogithub "github.com/google/go-github/v89/github"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/neterr"
)

// classify converts an error of go-github to a *github.Error. It returns nil for status 202, which means that GitHub
// has accepted the request.
func (c *Client) classify(k kind, doing string, resp *gogithub.Response, err error) error {
	if accepted := new(gogithub.AcceptedError); err == nil || errors.As(err, &accepted) {
		return nil
	}
	status := statusOf(resp)
	large, foreign := github.TooLarge{}, github.ForeignHost{}
	switch {
	case errors.As(err, &foreign):
		return github.NewError(github.KindUnavailable, doing, status, 0, foreign.Error(), err)
	case errors.As(err, &large): // a retry would fail the same way
		return github.NewError(github.KindUnexpected, doing, status, 0, large.Error(), err)
	case status == 0:
		return github.NewError(github.KindUnavailable, doing, 0, 0, neterr.NoAnswer(err), err)
	case status < http.StatusBadRequest:
		return github.NewError(github.KindUnavailable, doing, status, 0, "the answer can't be used: "+err.Error(), err)
	}
	message, kind, after := explanation(err), kindOf(k, status), time.Duration(0)
	if github.AsksToWait(status, resp.Header, message) {
		kind = github.KindRateLimited
	}
	switch kind {
	case github.KindRateLimited:
		after = github.RetryAfter(resp.Header, c.options.Theirs())
	case github.KindUnavailable:
		after = min(mostUnavailable, github.RetryAfter(resp.Header, c.options.Theirs()))
	}
	return github.NewError(kind, doing, status, after, message, err)
}

// errNothing is the error for an empty answer. errPartial is the error for an answer without a field that GitHub always
// sends.
var (
	errNothing = errors.New("the response is empty")
	errPartial = errors.New("required fields are missing from the response")
)

// something checks a decoded answer, and returns an error if the answer is empty or incomplete. go-github accepts an
// empty body and null, and reads missing fields as an empty list or as the id 0. The error for status 202 is returned
// unchanged if there is a decoded answer: classify ignores it.
func something[T any](read *T, resp *gogithub.Response, err error) (*T, *gogithub.Response, error) {
	if accepted := new(gogithub.AcceptedError); read == nil && (err == nil || errors.As(err, &accepted)) {
		return nil, resp, errNothing
	}
	if err == nil && !isWhole(read) {
		return nil, resp, errPartial
	}
	return read, resp, err
}

// listed does what something does for an answer that is a list. It checks only whether the answer is empty.
func listed[T any](read []T, resp *gogithub.Response, err error) ([]T, *gogithub.Response, error) {
	if err == nil && (read == nil || resp.ContentLength == 0) {
		return nil, resp, errNothing
	}
	return read, resp, err
}

// isWhole reports whether an answer has all fields that GitHub always sends.
func isWhole(read any) bool {
	switch read := read.(type) {
	case *gogithub.Runner:
		return isRunner(read)
	case *gogithub.Runners:
		return isList(read.Runners, isRunner)
	case *gogithub.RunnerGroups:
		return isList(read.RunnerGroups, hasID)
	case *gogithub.EnterpriseRunnerGroups:
		return isList(read.RunnerGroups, hasID)
	case *gogithub.WorkflowRuns:
		return isList(read.WorkflowRuns, hasID)
	case *gogithub.Jobs:
		return isList(read.Jobs, hasID)
	case *gogithub.WorkflowJob:
		return hasID(read)
	case *gogithub.InstallationToken:
		return read.GetToken() != ""
	}
	return true
}

func isList[T any](list []T, isWhole func(T) bool) bool {
	return list != nil && !slices.ContainsFunc(list, func(one T) bool { return !isWhole(one) })
}

func hasID[T interface{ GetID() int64 }](one T) bool { return one.GetID() != 0 }

// isRunner reports whether an answer names a runner and contains its status. Corral would otherwise treat a runner with
// a missing status as idle.
func isRunner(r *gogithub.Runner) bool {
	return hasID(r) && r.GetName() != "" && r.Busy != nil && r.Status != nil
}

func kindOf(k kind, status int) github.Kind {
	switch {
	case k == kindToken && status == http.StatusNotFound:
		return github.KindForbidden // the installation is gone, and so are its permissions
	case k.name == kindJIT.name && status == http.StatusConflict:
		return github.KindRunnerExists
	case k.name == kindRemove.name && status == http.StatusUnprocessableEntity:
		return github.KindJobStillRunning
	}
	return github.KindOfStatus(status)
}

// explanation returns GitHub's message without the URL of the request.
func explanation(err error) string {
	plain, primary, secondary := new(gogithub.ErrorResponse), new(gogithub.RateLimitError), new(gogithub.AbuseRateLimitError)
	switch {
	case errors.As(err, &primary):
		return primary.Message
	case errors.As(err, &secondary):
		return secondary.Message
	case errors.As(err, &plain):
		return plain.Message
	}
	return ""
}
