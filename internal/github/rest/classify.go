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

// classify makes an error of go-github a *github.Error. That of an answer which only tells that GitHub took the
// request up, 202, is none.
func (c *Client) classify(k kind, doing string, resp *gogithub.Response, err error) error {
	if accepted := new(gogithub.AcceptedError); err == nil || errors.As(err, &accepted) {
		return nil
	}
	status := statusOf(resp)
	large, foreign := github.TooLarge{}, github.ForeignHost{}
	switch {
	case errors.As(err, &foreign):
		return github.NewError(github.KindUnavailable, doing, status, 0, foreign.Error(), err)
	case errors.As(err, &large): // as it will be the next time
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

// errNothing is of an answer that has nothing in it, errPartial of one that lacks what GitHub always sends.
var (
	errNothing = errors.New("there is nothing in it")
	errPartial = errors.New("it lacks what GitHub always sends")
)

// something returns what go-github read, unless it is nothing: an empty body and null are no error of its, and a request that was only taken up
// is none of ours. An answer that lacks what GitHub always sends is an error as well: go-github reads it as an empty list, or as an id of 0.
func something[T any](read *T, resp *gogithub.Response, err error) (*T, *gogithub.Response, error) {
	if accepted := new(gogithub.AcceptedError); read == nil && (err == nil || errors.As(err, &accepted)) {
		return nil, resp, errNothing
	}
	if err == nil && !isWhole(read) {
		return nil, resp, errPartial
	}
	return read, resp, err
}

// listed is something for a list without an object around it.
func listed[T any](read []T, resp *gogithub.Response, err error) ([]T, *gogithub.Response, error) {
	if err == nil && (read == nil || resp.ContentLength == 0) {
		return nil, resp, errNothing
	}
	return read, resp, err
}

// isWhole reports whether an answer has what GitHub always sends.
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

// isRunner reports whether GitHub names a runner and says whether it has a job: one that it says nothing of would count as idle.
func isRunner(r *gogithub.Runner) bool {
	return hasID(r) && r.GetName() != "" && r.Busy != nil && r.Status != nil
}

func kindOf(k kind, status int) github.Kind {
	switch {
	case k == kindToken && status == http.StatusNotFound:
		return github.KindForbidden // an installation that is gone is a right that is gone
	case k == kindJIT && status == http.StatusConflict:
		return github.KindRunnerExists
	case k == kindRemove && status == http.StatusUnprocessableEntity:
		return github.KindJobStillRunning
	}
	return github.KindOfStatus(status)
}

// explanation is what GitHub said, without the request's URL.
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
