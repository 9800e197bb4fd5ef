// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package turns

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

// crowd enters a Limiter whose only turn is taken, and records the order of service.
type crowd struct {
	*Limiter
	served []string
}

// join waits in line until the earlier ones do, too.
func (c *crowd) join(ctx context.Context, name string, r Rank, flow string) {
	go func() {
		round, err := c.Enter(ctx, r, flow)
		if err != nil {
			return
		}
		c.served = append(c.served, name)
		c.Leave(round, Unknown)
	}()
	synctest.Wait()
}

func TestWaitingCallsAreServedByRankThenInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{Limiter: New(1)}
		round, err := c.Enter(t.Context(), Looking, "0")
		if err != nil {
			t.Fatal(err)
		}
		leaving, leave := context.WithCancel(t.Context())
		c.join(t.Context(), "lookup", Looking, "1")
		c.join(t.Context(), "jit a1", Registering, "1")
		c.join(leaving, "who left", Registering, "1")
		c.join(t.Context(), "jit a2", Registering, "1")
		c.join(t.Context(), "jit a3", Registering, "1")
		c.join(t.Context(), "session", Changing, "1")
		c.join(t.Context(), "jit b1", Registering, "2")
		c.join(t.Context(), "removal", Removing, "0")
		leave()
		synctest.Wait()
		c.Leave(round, Unknown)
		synctest.Wait()
		want := []string{"removal", "jit a1", "jit b1", "jit a2", "jit a3", "session", "lookup"}
		if diff := cmp.Diff(want, c.served); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
		if c.underWay != 0 {
			t.Errorf("%d turns are lost", c.underWay)
		}
	})
}

func TestATenantsManyFlowsGetNoMoreTurnsThanAnothersOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{Limiter: New(1)}
		round, err := c.Enter(t.Context(), Looking, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"greedy/a", "greedy/b", "greedy/c", "quiet/a", "greedy/d", "quiet/a 2"} {
			flow, _, _ := strings.Cut(name, " ")
			c.join(t.Context(), name, Registering, flow)
		}
		c.Leave(round, Unknown)
		synctest.Wait()
		want := []string{"greedy/a", "quiet/a", "greedy/b", "quiet/a 2", "greedy/c", "greedy/d"}
		if diff := cmp.Diff(want, c.served); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}

func TestLookupsComeThroughAnEndlessBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{Limiter: New(1)}
		round, err := c.Enter(t.Context(), Looking, "0")
		if err != nil {
			t.Fatal(err)
		}
		c.join(t.Context(), "lookup", Looking, "1")
		for range 2 * outOfTurn {
			c.join(t.Context(), "jit", Registering, "1")
		}
		c.Leave(round, Unknown)
		synctest.Wait()
		if at := cmp.Diff("lookup", c.served[outOfTurn-2]); at != "" {
			t.Errorf("served %v", c.served)
		}
	})
}

func TestLimitFollowsTheAnswers(t *testing.T) {
	type answers struct {
		calls int // concurrent calls; then all end
		end   Bearing
	}
	for name, tc := range map[string]struct {
		most int
		then []answers
		want int
	}{
		"first":                            {most: Most, want: First},
		"bounded by options":               {most: 4, want: 4},
		"one more per limit's worth":       {most: Most, then: []answers{{32, Good}, {32, Good}}, want: 33},
		"light load proves nothing":        {most: Most, then: []answers{{8, Good}, {8, Good}, {8, Good}, {8, Good}, {8, Good}, {8, Good}}, want: First},
		"halved once per round trip":       {most: Most, then: []answers{{32, Overloaded}}, want: 16},
		"halved by the next again":         {most: Most, then: []answers{{32, Overloaded}, {16, Overloaded}}, want: 8},
		"never below one":                  {most: 2, then: []answers{{1, Overloaded}, {1, Overloaded}, {1, Overloaded}}, want: 1},
		"recovers from one":                {most: 3, then: []answers{{1, Overloaded}, {1, Overloaded}, {1, Good}, {2, Good}, {2, Good}}, want: 3},
		"who was not called tells nothing": {most: Most, then: []answers{{32, Unknown}}, want: First},
	} {
		t.Run(name, func(t *testing.T) {
			l := New(tc.most)
			for _, a := range tc.then {
				rounds := make([]int, a.calls)
				for i := range rounds {
					var err error
					if rounds[i], err = l.Enter(t.Context(), Looking, "0"); err != nil {
						t.Fatal(err)
					}
				}
				for _, round := range rounds {
					l.Leave(round, a.end)
				}
			}
			if got := int(l.limit + 1e-9); got != tc.want {
				t.Errorf("limit %v; want %d", l.limit, tc.want)
			}
		})
	}
}

func TestWhoWaitsTooLongLeaves(t *testing.T) {
	l := New(1)
	round, err := l.Enter(t.Context(), Looking, "0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Enter(ctx, Removing, "1"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	l.Leave(round, Good)
	if l.underWay != 0 || len(l.waiting[Removing].branches) != 0 {
		t.Errorf("left behind: %+v", l)
	}
}
