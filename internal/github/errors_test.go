// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"errors"
	"net/http"
	"testing"
	"time"
)

func TestRetryAfterIsReadInAllForms(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for name, tc := range map[string]struct {
		header http.Header
		want   time.Duration
	}{
		"seconds":            {http.Header{"Retry-After": {"30"}}, 30 * time.Second},
		"negative":           {http.Header{"Retry-After": {"-30"}}, 0},
		"date":               {http.Header{"Retry-After": {now.Add(time.Minute).Format(http.TimeFormat)}}, time.Minute},
		"date in the past":   {http.Header{"Retry-After": {now.Add(-time.Minute).Format(http.TimeFormat)}}, 0},
		"primary rate limit": {http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"1767323105"}}, time.Minute},
		"limit not reached":  {http.Header{"X-Ratelimit-Remaining": {"9"}, "X-Ratelimit-Reset": {"1767323105"}}, 0},
		"nothing":            {nil, 0},
		"more than is taken": {http.Header{"Retry-After": {"99999999999"}}, MaxRetryAfter},
		"far below zero":     {http.Header{"Retry-After": {"-10000000000"}}, 0},
		"beyond all numbers": {http.Header{"Retry-After": {"99999999999999999999"}}, MaxRetryAfter},
		"in centuries":       {http.Header{"Retry-After": {now.AddDate(400, 0, 0).Format(http.TimeFormat)}}, MaxRetryAfter},
		"reset in centuries": {http.Header{"X-Ratelimit-Remaining": {"0"}, "X-Ratelimit-Reset": {"9223372036854775807"}}, MaxRetryAfter},
		"no number":          {http.Header{"Retry-After": {"soon"}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := RetryAfter(tc.header, now); got != tc.want {
				t.Errorf("got %s; want %s", got, tc.want)
			}
		})
	}
}

func TestTheCodeThatKeepsGitHubFromBeingUsed(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want int
	}{
		"an answer":       {NewError(KindUnavailable, "getting", 500, 0, "", nil), 500},
		"a limit":         {NewError(KindRateLimited, "getting", 403, 0, "secondary rate limit", nil), 403},
		"a limit obeyed":  {&Error{Kind: KindRateLimited, Next: time.Unix(1, 0)}, 429},
		"no answer":       {&Error{Kind: KindUnavailable, Silent: true}, 0},
		"another's error": {errors.New("500"), 0},
	} {
		summary := Summarize(tc.err)
		if got := CodeOf(summary); got != tc.want || summary.Error() != Summary(tc.err) {
			t.Errorf("%s: %d: %v", name, got, summary)
		}
	}
}
