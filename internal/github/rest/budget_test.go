// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/turns"
)

func TestPointsAMinuteAreKept(t *testing.T) {
	c := &clock{now: time.Unix(1_000_000, 0)}
	b := newBudget(c.Now, true, "")
	made := map[turns.Rank]int{}
	for range 60 { // a minute in which everybody wants all
		for _, k := range []kind{kindRunners, kindRunner, kindJIT, kindRemove} {
			for range 20 {
				if b.spend(k, "calling") == nil {
					made[k.rank]++
				}
			}
		}
		c.pass(time.Second)
	}
	points := made[turns.Listing] + made[turns.Looking] + 5*(made[turns.Registering]+made[turns.Removing])
	if points > 900 || points < 850 {
		t.Errorf("%d points in a minute: %v", points, made)
	}
	if made[turns.Registering] == 0 || made[turns.Removing] == 0 {
		t.Errorf("listings took all: %v", made)
	}
	c.pass(time.Hour)
	if err := b.spend(kindRunners, "listing"); err != nil {
		t.Errorf("an hour later: %v", err)
	}
}

func TestAListingOfManyPagesGoesOnSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pages, begun := 0, time.Now()
		answer := roundTrip(func(*http.Request) (*http.Response, error) {
			pages++
			header := http.Header{"Link": {`<https://api.github.com/orgs/acme/actions/runners?page=2>; rel="next"`}}
			if pages%100 == 0 { // of each repository, say
				header = http.Header{}
			}
			return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(strings.NewReader(`{"runners":[{"id":1}]}`))}, nil
		})
		c, err := NewClient(github.Credentials{ConfigURL: "https://github.com/acme", Token: "secret"}, github.Options{Transport: answer})
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			if _, err := c.Runners(t.Context(), 0); err != nil {
				t.Fatalf("after %d pages: %v", pages, err)
			}
			c.runners.kept = nil
		}
		if took := time.Since(begun); pages != 1000 || took < time.Minute || took > 2*time.Minute {
			t.Errorf("%d pages took %s", pages, took)
		}
	})
}

// roundTrip answers in GitHub's place.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAnEnterpriseServerCountsNoPoints(t *testing.T) {
	c := &clock{now: time.Unix(1_000_000, 0)}
	b := newBudget(c.Now, false, "")
	for range 10_000 {
		if err := b.spend(kindRemove, "removing"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnswersThatOvertakeEachOther(t *testing.T) {
	c := &clock{now: time.Unix(1_000_000, 0)}
	header := func(remaining int, reset time.Duration) http.Header {
		h := http.Header{}
		h.Set("X-Ratelimit-Limit", "5000")
		h.Set("X-Ratelimit-Remaining", strconv.Itoa(remaining))
		h.Set("X-Ratelimit-Reset", strconv.FormatInt(c.Now().Add(reset).Unix(), 10))
		return h
	}
	b := newBudget(c.Now, false, "")
	for _, step := range []struct {
		h    http.Header
		want int
	}{
		{header(100, time.Hour), 100},
		{header(103, time.Hour+time.Second), 100}, // sent before, come after
		{header(90, time.Hour), 90},
		{header(4999, 2*time.Hour), 4999},
		{http.Header{}, 4999},
	} {
		if b.note(kindRunner, step.h); b.hours[core].remaining != step.want {
			t.Errorf("%d left after %v; want %d", b.hours[core].remaining, step.h, step.want)
		}
	}
}

// GitHub counts some calls by another limit than the others.
func TestALimitIsForTheCallsThatItCounts(t *testing.T) {
	c := &clock{now: time.Unix(1_000_000, 0)}
	header := func(resource string, remaining int) http.Header {
		h := http.Header{}
		h.Set("X-Ratelimit-Limit", "5000")
		h.Set("X-Ratelimit-Remaining", strconv.Itoa(remaining))
		h.Set("X-Ratelimit-Reset", strconv.FormatInt(c.Now().Add(time.Hour).Unix(), 10))
		h.Set("X-Ratelimit-Resource", resource)
		return h
	}
	b := newBudget(c.Now, false, "")
	b.note(kindRunners, header(core, 4000))
	b.note(kindJIT, header("actions_runner_registration", 0))
	b.learn(kindJIT, github.NewError(github.KindRateLimited, "registering", 403, time.Hour, "API rate limit exceeded", nil), c.Now())
	if after, limited := github.IsRateLimited(b.admit(kindJIT, "registering")); !limited || after != time.Hour {
		t.Errorf("registering: limited %v, after %s", limited, after)
	}
	for _, k := range []kind{kindRunners, kindRemove} {
		if err := b.admit(k, "calling"); err != nil {
			t.Errorf("%s: %v", k.name, err)
		}
	}
	for i := range 100 {
		b.note(kindRunner, header(strconv.Itoa(i), 1))
	}
	if len(b.hours) > mostHours {
		t.Errorf("%d limits are kept", len(b.hours))
	}
}

func TestTheSecondaryLimitWithoutATimeIsWaitedForLongerEachTime(t *testing.T) {
	c := &clock{now: time.Unix(1_000_000, 0)}
	b := newBudget(c.Now, true, "")
	limited := github.NewError(github.KindRateLimited, "calling", 403, 0, "You have exceeded a secondary rate limit", nil)
	for i, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 15 * time.Minute, 15 * time.Minute} {
		began := c.Now()
		b.learn(kindRemove, limited, began)
		b.learn(kindRemove, limited, began.Add(-time.Second)) // was under way already
		after, ok := github.IsRateLimited(b.admit(kindRemove, "removing"))
		if !ok || after != want {
			t.Errorf("time %d: waits %s; want %s", i, after, want)
		}
		c.pass(want)
		if err := b.admit(kindRemove, "removing"); err != nil {
			t.Errorf("time %d: %v", i, err)
		}
		c.pass(time.Second)
	}
	b.learn(kindRemove, nil, c.Now())
	c.pass(time.Second)
	b.learn(kindRemove, limited, c.Now())
	if after, _ := github.IsRateLimited(b.admit(kindRemove, "removing")); after != time.Minute {
		t.Errorf("after an answer: waits %s", after)
	}
}

func TestKeptAnswersAreBounded(t *testing.T) {
	var a answers
	for i := range 100 {
		a.put(&answer{key: strconv.Itoa(i), tag: "t", body: make([]byte, 200_000)})
	}
	a.put(&answer{key: "huge", tag: "t", body: make([]byte, mostKeptOne+1)})
	a.put(&answer{key: "99", tag: "new", body: make([]byte, 10)})
	if a.size > mostKept || a.size < mostKept/2 || a.get("0") != nil || a.get("huge") != nil || a.get("99").tag != "new" || a.order.Len() != len(a.byKey) {
		t.Errorf("%d bytes in %d answers", a.size, a.order.Len())
	}
}
