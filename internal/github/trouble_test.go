// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

func TestTroubleIsWhatFailsAgainAndAgain(t *testing.T) {
	type call struct {
		after  int // seconds
		class  string
		status int
		header http.Header
	}
	limit := http.Header{"Retry-After": {"300"}}
	for name, tc := range map[string]struct {
		calls []call
		then  int // seconds
		code  int
		next  int // seconds after the last call
		wakes int
	}{
		"nothing":            {},
		"one failure":        {calls: []call{{0, "poll", 500, nil}}},
		"many at once":       {calls: []call{{0, "poll", 500, nil}, {1, "poll", 500, nil}, {1, "poll", 500, nil}, {1, "poll", 500, nil}}},
		"again and again":    {calls: []call{{0, "poll", 500, nil}, {5, "poll", 502, nil}, {5, "poll", 503, nil}}, code: 503, next: 30, wakes: 1},
		"and again":          {calls: []call{{0, "poll", 500, nil}, {5, "poll", 500, nil}, {5, "poll", 500, nil}, {9, "poll", 500, nil}}, code: 500, next: 30, wakes: 1},
		"other calls work":   {calls: []call{{0, "poll", 500, nil}, {5, "poll", 500, nil}, {1, "get", 200, nil}, {5, "poll", 500, nil}}, code: 500, next: 30, wakes: 1},
		"one of it worked":   {calls: []call{{0, "poll", 500, nil}, {5, "poll", 500, nil}, {1, "poll", 404, nil}, {5, "poll", 500, nil}}},
		"it is over":         {calls: []call{{0, "poll", 500, nil}, {5, "poll", 500, nil}, {5, "poll", 500, nil}, {5, "poll", 200, nil}}, wakes: 2},
		"of the past":        {calls: []call{{0, "poll", 500, nil}, {5, "poll", 500, nil}, {5, "poll", 500, nil}}, then: 90, wakes: 1},
		"seldom":             {calls: []call{{0, "poll", 500, nil}, {90, "poll", 500, nil}, {90, "poll", 500, nil}, {90, "poll", 500, nil}}},
		"no answers":         {calls: []call{{0, "poll", 0, nil}, {15, "poll", 0, nil}, {15, "poll", 0, nil}}, code: 0, next: 30, wakes: 1},
		"asked to wait":      {calls: []call{{0, "jit", 429, limit}, {300, "jit", 429, limit}, {300, "jit", 429, limit}}, then: 299, code: 429, next: 300, wakes: 1},
		"asked to wait long": {calls: []call{{0, "jit", 429, limit}}, then: 299, code: 429, next: 300, wakes: 1},
		"no right":           {calls: []call{{0, "jit", 403, nil}, {15, "jit", 403, nil}, {15, "jit", 403, nil}}},
		"a secondary limit":  {calls: []call{{0, "jit", 403, limit}, {300, "jit", 403, limit}, {300, "jit", 403, limit}}, code: 403, next: 300, wakes: 1},
		"what began first":   {calls: []call{{0, "poll", 500, nil}, {5, "poll", 500, nil}, {1, "get", 429, nil}, {4, "poll", 500, nil}, {1, "get", 429, nil}, {9, "get", 429, nil}}, code: 500, next: 20, wakes: 2},
		"of the former ones": {calls: []call{{0, "poll", 500, nil}, {5, "poll", 500, nil}, {5, "poll", 500, nil}, {0, "", 0, nil}}, wakes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			c, wakes := NewConnections(func() time.Time { return now }), 0
			c.OnTrouble(func(key string) {
				if _, yes := c.Trouble(key); key == "ns/main" && yes == (wakes%2 == 0 || name == "what began first") {
					wakes++
				}
			})
			for _, call := range tc.calls {
				if now = now.Add(seconds(call.after)); call.class == "" {
					if err := c.Set("ns/main", Credentials{ConfigURL: "https://github.com/acme", Token: "new"}); err != nil {
						t.Fatal(err)
					}
					continue
				}
				c.answered("ns/main", call.class, call.status, call.header, nil)
			}
			want, last := tc.next > 0, now
			now = now.Add(seconds(tc.then))
			got, yes := c.Trouble("ns/main")
			if yes != want || want && (got.Code != tc.code || got.Next != last.Add(seconds(tc.next))) {
				t.Errorf("%t, %+v", yes, got)
			}
			if wakes != tc.wakes {
				t.Errorf("%d times awake, want %d", wakes, tc.wakes)
			}
			if _, yes := c.Trouble("ns/other"); yes {
				t.Error("another connection is in trouble, too")
			}
		})
	}
}

func TestACallThatNobodyWaitedForSaysNothing(t *testing.T) {
	noted := 0
	c := NewConnections(time.Now)
	o := c.Watch(Options{}, "ns/main")
	o.answered = func(string, int, http.Header, error) { noted++ }
	left, leave := context.WithCancel(t.Context())
	leave()
	late, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	o.Note(left, "poll", nil, errors.New("cut"))
	Options{}.Note(t.Context(), "poll", nil, errors.New("cut"))
	if noted != 0 {
		t.Error("noted")
	}
	o.Note(late, "poll", nil, errors.New("cut"))
	o.Note(left, "poll", &http.Response{StatusCode: 200}, nil)
	if noted != 2 {
		t.Errorf("%d noted", noted)
	}
}

// Sometimes only the body mentions the limit. The caller can still read the whole body.
func TestASecondaryLimitIsTroubleWhateverTheHeaderSays(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	c := NewConnections(func() time.Time { return now })
	o := c.Watch(Options{}, "ns/main")
	for _, text := range []string{"Resource not accessible", "You have exceeded a secondary rate limit"} {
		for range troubleCalls {
			resp := &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text))}
			o.Note(t.Context(), "jit", resp, nil)
			if read, err := io.ReadAll(resp.Body); err != nil || string(read) != text {
				t.Errorf("%v: %q is left of %q", err, read, text)
			}
			now = now.Add(troubleTime)
		}
		if trouble, yes := c.Trouble("ns/main"); yes != IsSecondaryLimit(text) || yes && trouble.Next != now.Add(SecondaryRetry-troubleTime) {
			t.Errorf("%s: %t, %+v", text, yes, trouble)
		}
	}
}
