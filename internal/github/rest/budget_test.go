// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"cmp"
	"io"
	"maps"
	"net/http"
	"slices"
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
	for range 60 { // a minute in which every rank has calls
		for _, k := range []kind{kindRunners, kindRunner, kindJIT, kindRemove} {
			for range 20 {
				if _, err := b.spend(k, "calling"); err == nil {
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
	if _, err := b.spend(kindRunners, "listing"); err != nil {
		t.Errorf("an hour later: %v", err)
	}
}

// Registering and replacing any number of placeholders leaves a fifth of the points to runners that have to start.
func TestPlaceholdersLeavePointsToRunners(t *testing.T) {
	c := &clock{now: time.Unix(1_000_000, 0)}
	b := newBudget(c.Now, true, "")
	calls := func(k kind) (n int) {
		for b.admit(k, "calling") == nil {
			if _, err := b.spend(k, "calling"); err != nil {
				t.Fatal(err)
			}
			b.end(k, c.Now())
			n++
		}
		return n
	}
	const left = pointsAtOnce / 5 / pointsToWrite
	if n := calls(kindUnplace); n != pointsAtOnce/pointsToWrite-left {
		t.Errorf("%d placeholders are removed", n)
	}
	if n := calls(kindPlaceholder); n != 0 {
		t.Errorf("%d more placeholders are registered", n)
	}
	if n := calls(kindJIT); n != left {
		t.Errorf("%d runners are registered, want %d", n, left)
	}
}

func TestAListingOfManyPagesGoesOnSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pages, begun := 0, time.Now()
		answer := roundTrip(func(*http.Request) (*http.Response, error) {
			pages++
			header := http.Header{"Link": {`<https://api.github.com/orgs/acme/actions/runners?page=2>; rel="next"`}}
			if pages%100 == 0 { // for example of each repository
				header = http.Header{}
			}
			return &http.Response{StatusCode: http.StatusOK, Header: header, Body: io.NopCloser(strings.NewReader(`{"runners":[{"id":1,"name":"r1","status":"online","busy":false}]}`))}, nil
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

// roundTrip is a network implemented by a function.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAnEnterpriseServerCountsNoPoints(t *testing.T) {
	c := &clock{now: time.Unix(1_000_000, 0)}
	b := newBudget(c.Now, false, "")
	for range 10_000 {
		if _, err := b.spend(kindRemove, "removing"); err != nil {
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
		{header(103, time.Hour+time.Second), 100}, // sent earlier, arrives later
		{header(90, time.Hour), 90},
		{header(4999, 2*time.Hour), 4999},
		{http.Header{}, 4999},
	} {
		if b.note(kindRunner, step.h); b.hours[core].remaining != step.want {
			t.Errorf("%d left after %v; want %d", b.hours[core].remaining, step.h, step.want)
		}
	}
}

// Some calls count towards a different limit than the others.
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
		b.learn(kindRemove, limited, began.Add(-time.Second)) // was already in flight
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

// step is a call that ends after a second with the given error or nil.
type step struct {
	k   kind
	err error
}

var (
	errAway    = github.NewError(github.KindUnavailable, "calling", 502, 0, "", nil)
	errLater   = github.NewError(github.KindUnavailable, "calling", 503, time.Minute, "", nil)
	errLimited = github.NewError(github.KindRateLimited, "calling", 429, time.Minute, "", nil)
	errNone    = github.NewError(github.KindNotFound, "calling", 404, 0, "", nil)
)

// makes executes calls, each as soon as it is allowed.
func (b *budget) makes(t *testing.T, c *clock, steps ...step) {
	t.Helper()
	for i, s := range steps {
		wait, _ := github.ComeBack(b.admit(s.k, "calling"))
		c.pass(wait)
		began, err := b.spend(s.k, "calling")
		if err != nil {
			t.Fatalf("step %d, %s: %v", i, s.k.name, err)
		}
		c.pass(time.Second)
		b.learn(s.k, s.err, began)
		b.end(s.k, began)
	}
}

// refused returns how long the calls of each kind have to wait, without kinds that need not wait.
func (b *budget) refused(want github.Kind, kinds ...kind) map[string]time.Duration {
	waits := map[string]time.Duration{}
	for _, k := range kinds {
		if err := b.admit(k, "calling"); err != nil {
			after, _ := github.ComeBack(err)
			if github.KindOf(err) != want {
				after = -1
			}
			waits[k.name] = after
		}
	}
	return waits
}

// A rate limit belongs to the identity, so it applies to all calls. An unanswered kind of calls pauses no other kind,
// unless several kinds fail and the last failure is a call that starts or removes a runner.
func TestWhatASilenceRefuses(t *testing.T) {
	all := func(d time.Duration) map[string]time.Duration {
		return map[string]time.Duration{"runner_remove": d, "runner_jit": d, "groups": d, "runner": d, "runners": d, "jobs": d}
	}
	thrice := func(k kind) []step { return []step{{k, errAway}, {k, errAway}, {k, errAway}} }
	for name, tc := range map[string]struct {
		steps []step
		kind  github.Kind // of the refusals; Unavailable if empty
		want  map[string]time.Duration
	}{
		"two calls":        {steps: []step{{kindRunners, errAway}, {kindRunners, errAway}}},
		"a listing":        {steps: thrice(kindRunners), want: map[string]time.Duration{"runners": time.Second}},
		"with Retry-After": {steps: []step{{kindRunners, errLater}}, want: map[string]time.Duration{"runners": time.Minute}},
		"a registration":   {steps: thrice(kindJIT), want: map[string]time.Duration{"runner_jit": time.Second}},
		"many calls":       {steps: slices.Repeat(thrice(kindJIT), 3), want: map[string]time.Duration{"runner_jit": 30 * time.Second}},
		"an answer to the kind": {
			steps: []step{{kindRunners, errAway}, {kindRunners, errAway}, {kindRunners, errNone}, {kindRunners, errAway}},
		},
		"an answer to another kind": {
			steps: append(thrice(kindRunners)[:2], step{kindJIT, nil}, step{kindRunners, errAway}),
			want:  map[string]time.Duration{"runners": time.Second},
		},
		"all listings": {
			steps: []step{{kindRunners, errLater}, {kindRepos, errLater}, {kindRuns, errLater}, {kindJobs, errLater}},
			want:  map[string]time.Duration{"runners": 57 * time.Second, "jobs": time.Minute},
		},
		"lookups": {
			steps: []step{{kindGroups, errLater}, {kindJob, errLater}, {kindRunner, errLater}},
			want:  map[string]time.Duration{"groups": 58 * time.Second, "runner": time.Minute},
		},
		"three kinds":               {steps: []step{{kindRunners, errAway}, {kindRunner, errAway}, {kindJIT, errAway}}, want: all(time.Second)},
		"three kinds, one thrice":   {steps: append(thrice(kindJIT), step{kindRunner, errAway}, step{kindRemove, errAway}), want: all(time.Second)},
		"with an answer in between": {steps: []step{{kindRunners, errAway}, {kindRunner, errAway}, {kindJobs, errNone}, {kindJIT, errAway}}},
		"an answer to three kinds":  {steps: []step{{kindRunners, errLater}, {kindRunner, errAway}, {kindJIT, errAway}, {kindRemove, errNone}}},
		"a limit":                   {steps: []step{{kindRunners, errLimited}}, kind: github.KindRateLimited, want: all(time.Minute)},
		"a limit of a registration": {
			steps: []step{{kindJIT, errAway}, {kindRunner, errAway}, {kindJIT, errLimited}}, kind: github.KindRateLimited, want: all(time.Minute),
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &clock{now: time.Unix(1_000_000, 0)}
			b := newBudget(c.Now, true, "")
			b.makes(t, c, tc.steps...)
			got := b.refused(cmp.Or(tc.kind, github.KindUnavailable), kindRemove, kindJIT, kindGroups, kindRunner, kindRunners, kindJobs)
			if !maps.Equal(got, tc.want) {
				t.Errorf("refused %v; want %v", got, tc.want)
			}
		})
	}
}

// When the pause of all calls ends, a single call tries, and any answer ends the pause. Lists and lookups may try as
// well, but cannot prolong it.
func TestTheProbeOfASilence(t *testing.T) {
	for name, tc := range map[string]struct {
		probe        kind
		err          error
		gone         bool          // the caller left before an answer arrived
		during, then time.Duration // how long all calls have to wait during the probe, and after it
	}{
		"answered":           {probe: kindRemove, during: time.Second},
		"an error":           {probe: kindRemove, err: errNone, during: time.Second},
		"silent again":       {probe: kindRemove, err: errAway, during: time.Second, then: 2 * time.Second},
		"given up":           {probe: kindJIT, gone: true, during: time.Second},
		"a listing":          {probe: kindRunners},
		"a silent listing":   {probe: kindRunners, err: errAway},
		"a limit":            {probe: kindJIT, err: errLimited, during: time.Second, then: time.Minute},
		"a listing, limited": {probe: kindRunners, err: errLimited, then: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			c := &clock{now: time.Unix(1_000_000, 0)}
			b := newBudget(c.Now, true, "")
			check := func(when string, want time.Duration) {
				t.Helper()
				for _, k := range []kind{kindRemove, kindJIT, kindGroups, kindRunner, kindRunners, kindJobs} {
					if after, _ := github.ComeBack(b.admit(k, "calling")); after != want {
						t.Errorf("%s: %s waits %s; want %s", when, k.name, after, want)
					}
				}
			}
			b.makes(t, c, step{kindRunners, errAway}, step{kindRunner, errAway}, step{kindJIT, errAway})
			check("before", time.Second)
			c.pass(time.Second)
			began, err := b.spend(tc.probe, "trying")
			if err != nil {
				t.Fatal(err)
			}
			c.pass(time.Second)
			check("during", tc.during)
			if !tc.gone {
				b.learn(tc.probe, tc.err, began)
			}
			b.end(tc.probe, began)
			check("then", tc.then)
		})
	}
}

// Calls that were in flight at the same time count as one failure. The pause of a kind ends with one probe, too.
func TestAKindThatFailsManyTimesAtOnce(t *testing.T) {
	c := &clock{now: time.Unix(1_000_000, 0)}
	b := newBudget(c.Now, false, "")
	for wave := range silentCalls {
		var begun []time.Time
		for range 10 {
			began, err := b.spend(kindJIT, "registering")
			if err != nil {
				t.Fatalf("wave %d: %v", wave, err)
			}
			begun = append(begun, began)
		}
		for _, began := range begun {
			c.pass(time.Second)
			b.learn(kindJIT, errAway, began)
			b.end(kindJIT, began)
		}
	}
	c.pass(time.Second)
	began, err := b.spend(kindJIT, "registering")
	if err != nil {
		t.Fatal(err)
	}
	if after, away := github.ComeBack(b.admit(kindJIT, "registering")); !away || after != time.Second {
		t.Errorf("during the probe: wait %v, %s", away, after)
	}
	b.learn(kindJIT, nil, began)
	b.end(kindJIT, began)
	if err := b.admit(kindJIT, "registering"); err != nil {
		t.Error(err)
	}
}

// An answer ends the pause of all calls even if its call began before the pause.
func TestALateAnswerEndsThePause(t *testing.T) {
	c := &clock{now: time.Unix(1_000_000, 0)}
	b := newBudget(c.Now, false, "")
	began, err := b.spend(kindJobs, "listing")
	if err != nil {
		t.Fatal(err)
	}
	b.makes(t, c, step{kindRunners, errAway}, step{kindRunner, errAway}, step{kindJIT, errAway})
	if err := b.admit(kindRemove, "removing"); !github.IsUnavailable(err) {
		t.Errorf("got %v", err)
	}
	b.learn(kindJobs, nil, began)
	if err := b.admit(kindRemove, "removing"); err != nil {
		t.Error(err)
	}
}

func TestKeptAnswersAreBounded(t *testing.T) {
	var a answers
	o := github.Options{}.WithDefaults(1).For(github.Credentials{})
	put := func(key, tag string, size int) {
		a.put(&answer{key: key, tag: tag, size: size, body: github.Keep(o, make([]byte, size), size)})
	}
	tagOf := func(key string) string {
		x, body := a.get(key)
		if x == nil || len(body) != x.size {
			return ""
		}
		return x.tag
	}
	for i := range 100 {
		put(strconv.Itoa(i), "t", 200_000)
	}
	put("huge", "t", mostKeptOne+1)
	put("99", "new", 10)
	if a.size > mostKept || a.size < mostKept/2 || tagOf("0") != "" || tagOf("huge") != "" || tagOf("99") != "new" || a.order.Len() != len(a.byKey) {
		t.Errorf("%d bytes in %d answers", a.size, a.order.Len())
	}
	// Other connections of the namespace need the memory.
	for range 100 {
		github.Keep(o, "", 100_000)
	}
	gone := 0
	for i := range 99 {
		if _, known := a.byKey[strconv.Itoa(i)]; known && tagOf(strconv.Itoa(i)) == "" {
			gone++
		}
	}
	if gone == 0 || a.order.Len() != len(a.byKey) {
		t.Errorf("%d answers made room", gone)
	}
}
