// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package clock

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// answer is the answer of a server whose clock is ahead by so much.
type answer struct {
	ahead            time.Duration
	before, after    time.Duration // the durations of the request's and the answer's transfer
	status           int
	age, withoutDate bool
	later            time.Duration // than 300 ms after the previous answer
}

// RoundTrip answers a request.
func (a *answer) RoundTrip(*http.Request) (*http.Response, error) {
	time.Sleep(a.before)
	w := httptest.NewRecorder()
	if !a.withoutDate {
		w.Header().Set("Date", time.Now().Add(a.ahead).UTC().Format(http.TimeFormat))
	}
	if a.age {
		w.Header().Set("Age", "3600")
	}
	w.WriteHeader(max(a.status, http.StatusOK))
	time.Sleep(a.after)
	return w.Result(), nil
}

func TestClock(t *testing.T) {
	for name, tc := range map[string]struct {
		answers []answer
		want    time.Duration
		within  time.Duration
		crossed int // how often the reported difference crossed the limit
	}{
		"no answer":                           {},
		"the same time":                       {answers: []answer{{}}},
		"two seconds are ignored":             {answers: []answer{{ahead: 1900 * time.Millisecond}, {ahead: -1900 * time.Millisecond}}},
		"an hour ahead":                       {answers: []answer{{ahead: time.Hour}}, want: time.Hour, within: time.Second, crossed: 1},
		"an hour behind":                      {answers: []answer{{ahead: -time.Hour}}, want: -time.Hour, within: time.Second, crossed: 1},
		"twenty seconds":                      {answers: []answer{{ahead: 20 * time.Second}}, want: 20 * time.Second, within: time.Second},
		"corrected meanwhile":                 {answers: []answer{{ahead: time.Hour}, {}, {later: confirmAfter}, {later: crossAgain}}, crossed: 2},
		"dates around the limit":              {answers: []answer{{ahead: 20 * time.Second}, {ahead: 45 * time.Second}, {ahead: 20 * time.Second}, {ahead: 45 * time.Second}, {ahead: 20 * time.Second}}, want: 20 * time.Second, within: 3 * time.Second, crossed: 1},
		"one answer is an hour ahead":         {answers: []answer{{}, {ahead: time.Hour}, {later: confirmAfter}, {ahead: time.Hour, later: confirmAfter}}},
		"many disagree for a short time":      {answers: []answer{{}, {ahead: time.Hour}, {ahead: time.Hour}, {ahead: time.Hour}, {ahead: time.Hour}}},
		"the new answers disagree":            {answers: []answer{{}, {ahead: time.Hour}, {ahead: 2 * time.Hour, later: confirmAfter}, {ahead: time.Hour, later: confirmAfter}}},
		"a new difference lasts":              {answers: []answer{{}, {ahead: time.Hour}, {ahead: time.Hour, later: confirmAfter}}, want: time.Hour, within: time.Second, crossed: 1},
		"a small correction":                  {answers: []answer{{ahead: time.Hour}, {ahead: time.Hour + 20*time.Second}}, want: time.Hour + 20*time.Second, within: time.Second, crossed: 1},
		"it stays the same":                   {answers: []answer{{ahead: time.Hour}, {ahead: time.Hour}, {ahead: time.Hour}}, want: time.Hour, within: time.Second, crossed: 1},
		"an answer held for a minute":         {answers: []answer{{before: time.Minute}, {after: time.Minute}}},
		"held for a minute, an hour ahead":    {answers: []answer{{ahead: time.Hour, before: 30 * time.Second, after: 30 * time.Second}}, want: time.Hour, within: time.Minute, crossed: 1},
		"more exact with the next":            {answers: []answer{{ahead: time.Hour, before: time.Minute}, {ahead: time.Hour}}, want: time.Hour, within: 3 * time.Second, crossed: 1},
		"a gateway's error":                   {answers: []answer{{ahead: time.Hour, status: http.StatusBadGateway}}},
		"out of a cache":                      {answers: []answer{{ahead: -time.Hour, age: true}}},
		"without a date":                      {answers: []answer{{withoutDate: true}}},
		"a refusal has the server's date too": {answers: []answer{{ahead: time.Hour, status: http.StatusUnauthorized}}, want: time.Hour, within: time.Second, crossed: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				crossed := 0
				c := New(Steady(), time.Now, func(_ time.Duration, crosses bool) {
					if crosses {
						crossed++
					}
				})
				for _, a := range tc.answers {
					time.Sleep(300*time.Millisecond + a.later)
					resp, err := c.Wrap(&a).RoundTrip(httptest.NewRequest(http.MethodGet, "/", http.NoBody))
					if err != nil {
						t.Fatal(err)
					}
					resp.Body.Close()
				}
				if d := c.Now().Sub(time.Now().Round(0)); (d - tc.want).Abs() > tc.within {
					t.Errorf("it is %s ahead, want %s", d, tc.want)
				}
				if crossed != tc.crossed {
					t.Errorf("the limit was crossed %d times, want %d", crossed, tc.crossed)
				}
			})
		})
	}
}

// The local clock may follow another server's, which is set back.
func TestCrossingsAreReportedAfterTheLocalClockIsSetBack(t *testing.T) {
	now, crossed := time.Unix(1_000_000_000, 0), 0
	local := func() time.Time { return now }
	c := New(local, local, func(_ time.Duration, crosses bool) {
		if crosses {
			crossed++
		}
	})
	c.note(now.Add(time.Hour), now, now)
	now = now.Add(-time.Hour)
	for range 2 {
		c.note(now, now, now)
		now = now.Add(confirmAfter)
	}
	if crossed != 2 {
		t.Errorf("the limit was crossed %d times, want 2", crossed)
	}
}

// If the machine's clock is put forward while the process runs, the process continues by the server's clock, and the
// difference is reported.
func TestClockOfAMachineThatJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var jump, ahead time.Duration
		c := New(Steady(), func() time.Time { return time.Now().Add(jump) }, func(d time.Duration, _ bool) { ahead = d })
		for _, jump = range []time.Duration{0, time.Hour, -time.Hour} {
			resp, err := c.Wrap(&answer{}).RoundTrip(httptest.NewRequest(http.MethodGet, "/", http.NoBody))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if d := c.Now().Sub(time.Now().Round(0)); d != 0 || ahead != -jump {
				t.Errorf("after %s: it is %s ahead, reported are %s", jump, d, ahead)
			}
		}
	})
}
