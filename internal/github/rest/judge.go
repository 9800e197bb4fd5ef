// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-github/v89/github"

	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/silence"
)

// judge types an error of go-github. That of an answer which only tells that GitHub took the
// request up, 202, is none.
func (c *Client) judge(k kind, doing string, resp *github.Response, err error) error {
	if accepted := new(github.AcceptedError); errors.As(err, &accepted) {
		return nil
	}
	status := statusOf(resp)
	large := tooLarge(0)
	switch {
	case errors.As(err, &large): // as it will be the next time
		return scaleset.NewError(scaleset.KindUnexpected, doing, status, 0, large.Error(), err)
	case status == 0:
		return scaleset.NewError(scaleset.KindUnavailable, doing, 0, 0, silence.Of(err), err)
	case status < http.StatusBadRequest:
		return scaleset.NewError(scaleset.KindUnavailable, doing, status, 0, "the answer can't be used: "+err.Error(), err)
	}
	message := explanation(err)
	if after, limited := limitOf(resp, message, c.options.Now()); limited {
		return scaleset.NewError(scaleset.KindRateLimited, doing, status, after, message, err)
	}
	after := time.Duration(0)
	kind := classify(k, status)
	if kind == scaleset.KindUnavailable {
		after = retryAfter(resp.Header, c.options.Now())
	}
	return scaleset.NewError(kind, doing, status, after, message, err)
}

// errNothing is of an answer that has nothing in it.
var errNothing = errors.New("there is nothing in it")

// something returns what go-github read, unless it is nothing: an empty body and null are no error of its.
func something[T any](read *T, resp *github.Response, err error) (*T, *github.Response, error) {
	if err == nil && read == nil {
		return nil, resp, errNothing
	}
	return read, resp, err
}

func classify(k kind, status int) scaleset.Kind {
	switch {
	case status >= http.StatusInternalServerError, status == http.StatusRequestTimeout:
		return scaleset.KindUnavailable
	case status == http.StatusUnauthorized:
		return scaleset.KindUnauthorized
	case status == http.StatusForbidden, k == kindToken && status == http.StatusNotFound:
		return scaleset.KindForbidden // an installation that is gone is a right that is gone
	case status == http.StatusNotFound:
		return scaleset.KindNotFound
	case status == http.StatusConflict && k == kindJIT:
		return scaleset.KindRunnerExists
	case status == http.StatusUnprocessableEntity && k == kindRemove:
		return scaleset.KindJobStillRunning
	}
	return scaleset.KindUnexpected
}

// limitOf says whether GitHub asks to come back later, and when, by
// https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api
func limitOf(resp *github.Response, message string, now time.Time) (after time.Duration, limited bool) {
	if resp.StatusCode != http.StatusForbidden && resp.StatusCode != http.StatusTooManyRequests {
		return 0, false
	}
	after = retryAfter(resp.Header, now)
	secondary := strings.Contains(strings.ToLower(message), "secondary rate limit") || strings.Contains(strings.ToLower(message), "abuse detection")
	return after, after > 0 || secondary || resp.StatusCode == http.StatusTooManyRequests || resp.Header.Get(github.HeaderRateRemaining) == "0"
}

// retryAfter reads Retry-After in seconds, else the primary limit's reset.
func retryAfter(h http.Header, now time.Time) time.Duration {
	if seconds, err := strconv.Atoi(h.Get("Retry-After")); err == nil && seconds > 0 {
		return min(mostWait, time.Duration(min(seconds, 1<<20))*time.Second)
	}
	if h.Get(github.HeaderRateRemaining) != "0" {
		return 0
	}
	reset, err := strconv.ParseInt(h.Get(github.HeaderRateReset), 10, 64)
	if err != nil {
		return 0
	}
	return min(mostWait, max(0, time.Unix(reset, 0).Sub(now)))
}

// explanation is what GitHub said, without the request's URL.
func explanation(err error) string {
	plain, primary, secondary := new(github.ErrorResponse), new(github.RateLimitError), new(github.AbuseRateLimitError)
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
