// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"errors"
	"net/http"
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
	large := github.TooLarge(0)
	switch {
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
		after = github.RetryAfter(resp.Header, c.options.Now())
	case github.KindUnavailable:
		after = min(mostUnavailable, github.RetryAfter(resp.Header, c.options.Now()))
	}
	return github.NewError(kind, doing, status, after, message, err)
}

// errNothing is of an answer that has nothing in it.
var errNothing = errors.New("there is nothing in it")

// something returns what go-github read, unless it is nothing: an empty body and null are no error of its, and a request that was only taken up
// is none of ours.
func something[T any](read *T, resp *gogithub.Response, err error) (*T, *gogithub.Response, error) {
	if accepted := new(gogithub.AcceptedError); read == nil && (err == nil || errors.As(err, &accepted)) {
		return nil, resp, errNothing
	}
	return read, resp, err
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
