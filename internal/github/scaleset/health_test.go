// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/sim/githubsim"
)

// step is a call at some time, and its result.
type step struct {
	after time.Duration
	call  endpoint
	ends  string // answered, silent, cut or left; refused if it is not allowed
}

func TestWhatDoesNotAnswerIsProbedOneAtATime(t *testing.T) {
	const jit, get = endpointGenerateJIT, endpointScaleSetGet
	dead := []step{{0, jit, "silent"}, {0, jit, "silent"}, {0, jit, "silent"}}
	many := slices.Repeat([]step{{0, jit, "cut"}}, cutAfter)
	for name, steps := range map[string][]step{
		"two calls without an answer are no proof":     {{0, jit, "silent"}, {0, jit, "silent"}, {0, jit, "silent but alive"}},
		"an answer in between":                         {{0, jit, "silent"}, {0, jit, "silent"}, {0, jit, "answered"}, {0, jit, "silent"}, {0, jit, "silent"}, {0, jit, "answered"}},
		"three are, of the endpoint":                   append(dead, step{0, jit, "refused"}, step{0, get, "answered"}),
		"and of all when another is silent, too":       append(dead, step{0, get, "silent"}, step{0, get, "refused"}, step{0, endpointRunnerDelete, "refused"}),
		"another endpoint answers: one endpoint only":  {{0, jit, "silent"}, {0, jit, "silent"}, {0, get, "answered"}, {0, jit, "silent"}, {0, jit, "refused"}, {0, get, "answered"}},
		"a probe after a second, the next after two":   append(dead, step{time.Second, jit, "silent"}, step{0, jit, "refused"}, step{900 * time.Millisecond, jit, "refused"}, step{1100 * time.Millisecond, jit, "silent"}),
		"a probe that is answered opens all":           append(dead, step{0, get, "silent"}, step{time.Second, jit, "answered"}, step{0, get, "answered"}, step{0, jit, "silent"}, step{0, jit, "answered"}),
		"a probe whose caller leaves proves nothing":   append(dead, step{time.Second, jit, "left"}, step{0, jit, "answered"}),
		"calls that are cut at once are no silence":    append(many[:cutAfter-1:cutAfter-1], step{0, jit, "cut"}, step{0, jit, "refused"}, step{0, get, "cut"}, step{cutMin, jit, "cut"}, step{0, jit, "refused"}, step{2 * cutMin, jit, "answered"}, step{0, jit, "cut"}, step{0, jit, "answered"}),
		"nor add up with it":                           append(many[:cutAfter-1:cutAfter-1], step{0, jit, "silent"}, step{0, jit, "silent"}, step{0, jit, "answered"}),
		"another endpoint's probe tells of connection": append(dead, step{0, get, "silent"}, step{time.Second, get, "answered"}, step{0, endpointRunnerDelete, "answered"}, step{0, jit, "answered"}),
	} {
		t.Run(name, func(t *testing.T) {
			clock := newTestClock()
			h := newHealth(clock.now)
			for i, s := range steps {
				clock.advance(s.after)
				p, refusal := h.admit(s.call)
				if (refusal != nil) != (s.ends == "refused") {
					t.Fatalf("step %d: %v; want %s", i, refusal, s.ends)
				}
				switch s.ends {
				case "answered":
					h.answered(p)
				case "left":
					h.giveBack(p)
				case "cut":
					h.unanswered(p, "reset")
				case "silent", "silent but alive":
					clock.advance(atOnce)
					h.unanswered(p, "no answer in time")
				}
			}
		})
	}
}

func TestOnlyOneProbeIsUnderWay(t *testing.T) {
	clock := newTestClock()
	h := newHealth(clock.now)
	for range deadAfter {
		p, _ := h.admit(endpointGenerateJIT)
		clock.advance(atOnce)
		h.unanswered(p, "no answer in time")
	}
	clock.advance(probeMax)
	first, refusal := h.admit(endpointGenerateJIT)
	if refusal != nil || !first.isProbe() {
		t.Fatalf("no probe: %v", refusal)
	}
	_, refusal = h.admit(endpointGenerateJIT)
	if refusal == nil || refusal.RetryAfter < probeMin || !strings.Contains(refusal.Message, "didn't answer the last 3 calls (no answer in time)") {
		t.Errorf("got %v", refusal)
	}
}

func TestProbesAreAtMostThirtySecondsApart(t *testing.T) {
	clock := newTestClock()
	h := newHealth(clock.now)
	for range 20 {
		p, refusal := h.admit(endpointGenerateJIT)
		if refusal != nil {
			if refusal.RetryAfter > probeMax {
				t.Errorf("next in %s", refusal.RetryAfter)
			}
			clock.advance(refusal.RetryAfter)
			continue
		}
		clock.advance(atOnce)
		h.unanswered(p, "no answer in time")
	}
}

// Five of twenty registrations lose their connection at once. The others do not wait for them, and the five do not wait
// long.
func TestConnectionsThatAreCutDelayNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c := memoryClient(t, githubsim.Options{})
		set := createSet(t, c)
		sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointJITConfig, Times: 5, DropAnswer: true})
		began, took := time.Now(), make([]time.Duration, 20)
		var all errgroup.Group
		for i := range took {
			all.Go(func() error {
				for t.Context().Err() == nil {
					_, err := c.GenerateJIT(t.Context(), set.ID, fmt.Sprint("linux-", i))
					if after, away := github.ComeBack(err); away {
						time.Sleep(max(after, 500*time.Millisecond))
						continue
					}
					break
				}
				took[i] = time.Since(began)
				return nil
			})
		}
		_ = all.Wait() // never fails
		slices.Sort(took)
		if took[14] > 500*time.Millisecond || took[19] > 3*time.Second {
			t.Errorf("they took %s", took)
		}
		time.Sleep(clientRest)
	})
}

// A hundred workers call a GitHub that hangs. Each waits for one timeout at most, and later calls do not wait at all.
func TestNobodyWaitsForADeadGitHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		var alive atomic.Bool
		sim := githubsim.New(githubsim.Options{})
		defer sim.Close()
		sim.AddOrg("acme")
		sim.AddToken("secret")
		network := inMemory(sim)
		c, err := NewClient(github.Credentials{ConfigURL: "http://github.test/acme", Token: "secret"}, github.Options{Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
			calls.Add(1)
			if alive.Load() {
				return network.RoundTrip(req)
			}
			<-req.Context().Done()
			return nil, req.Context().Err()
		})})
		if err != nil {
			t.Fatal(err)
		}
		callers := func(n int) time.Duration {
			began := time.Now()
			var all errgroup.Group
			for range n {
				all.Go(func() error {
					if _, err := c.Get(t.Context(), 1); !github.IsUnavailable(err) {
						t.Errorf("got %v", err)
					}
					return nil
				})
			}
			_ = all.Wait() // the errors are checked above
			return time.Since(began)
		}
		if took := callers(100); took > 15*time.Second {
			t.Errorf("the first took %s", took)
		}
		if took := callers(100); took > 0 {
			t.Errorf("calling a dead GitHub took %s", took)
		}
		_, err = c.Get(t.Context(), 1)
		summary, e := github.Summary(err), new(github.Error)
		if want := "reading scale set 1: GitHub didn't answer the last 3 calls (no answer in time)"; summary != want || !errors.As(err, &e) || e.RetryAfter <= 0 {
			t.Errorf("got %q, %v; want %q", summary, err, want)
		}
		calls.Store(0)
		for begun := time.Now(); time.Since(begun) < 10*time.Minute; {
			_, err := c.Get(t.Context(), 1)
			if got := github.Summary(err); got != summary {
				t.Fatalf("the words changed to %q", got)
			}
			time.Sleep(time.Second)
		}
		if n := calls.Load(); n > 30 {
			t.Errorf("%d probes in ten minutes", n)
		}
		alive.Store(true)
		time.Sleep(probeMax)
		if _, err := c.Get(t.Context(), 1); !github.IsNotFound(err) {
			t.Errorf("after GitHub came back: %v", err)
		}
		time.Sleep(clientRest)
	})
}

func TestOneDeadEndpointLeavesTheOthersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim, c := memoryClient(t, githubsim.Options{})
		set := createSet(t, c)
		sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointJITConfig, Hang: true})
		ctx, stop := context.WithCancel(t.Context())
		var all errgroup.Group
		for range 64 {
			all.Go(func() error {
				for ctx.Err() == nil {
					_, _ = c.GenerateJIT(ctx, set.ID, "a")
					time.Sleep(time.Second)
				}
				return nil
			})
		}
		time.Sleep(20 * time.Second) // the hanging calls are over; from now on there are probes only
		for range 100 {
			began := time.Now()
			if _, err := c.Get(t.Context(), set.ID); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took > 0 {
				t.Fatalf("a call waited %s behind those to a dead endpoint", took)
			}
			time.Sleep(time.Second)
		}
		stop()
		_ = all.Wait() // never fails
	})
}
