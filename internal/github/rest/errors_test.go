// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"net/http"
	"testing"
	"time"

	gogithub "github.com/google/go-github/v89/github"

	"github.com/corral-dev/corral/internal/github"
)

// Otherwise, a connection whose next check is years away would never become ready again.
func TestALimitIsObeyedForABoundedTime(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	resp := &gogithub.Response{Response: &http.Response{StatusCode: http.StatusForbidden}}
	for name, tc := range map[string]struct {
		err  error
		want time.Duration
	}{
		"secondary":              {&gogithub.AbuseRateLimitError{RetryAfter: new(30 * time.Second)}, 30 * time.Second},
		"secondary, unsaid":      {&gogithub.AbuseRateLimitError{}, time.Minute},
		"secondary, for years":   {&gogithub.AbuseRateLimitError{RetryAfter: new(20000 * time.Hour)}, github.MaxRetryAfter},
		"secondary, of the past": {&gogithub.AbuseRateLimitError{RetryAfter: new(-time.Hour)}, 0},
		"primary":                {&gogithub.RateLimitError{Rate: gogithub.Rate{Reset: gogithub.Timestamp{Time: now.Add(time.Minute)}}}, time.Minute},
		"primary, for years":     {&gogithub.RateLimitError{Rate: gogithub.Rate{Reset: gogithub.Timestamp{Time: now.AddDate(9, 0, 0)}}}, github.MaxRetryAfter},
	} {
		if got := unavailable(resp, tc.err, now); got == nil || got.RetryAfter != tc.want {
			t.Errorf("%s: %+v, want %s", name, got, tc.want)
		}
	}
}
