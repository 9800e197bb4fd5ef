// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
)

// crowd enters a limiter whose only turn is taken, and tells in which order it is served.
type crowd struct {
	*limiter
	served []string
}

// join waits in line until the earlier ones do, too.
func (c *crowd) join(ctx context.Context, name string, r rank, flow int64) {
	go func() {
		round, err := c.enter(ctx, r, flow)
		if err != nil {
			return
		}
		c.served = append(c.served, name)
		c.leave(round, unknown)
	}()
	synctest.Wait()
}

func TestWaitingCallsAreServedByRankThenInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{limiter: newLimiter(1)}
		round, err := c.enter(t.Context(), looking, 0)
		if err != nil {
			t.Fatal(err)
		}
		leaving, leave := context.WithCancel(t.Context())
		c.join(t.Context(), "lookup", looking, 1)
		c.join(t.Context(), "jit a1", registering, 1)
		c.join(leaving, "who left", registering, 1)
		c.join(t.Context(), "jit a2", registering, 1)
		c.join(t.Context(), "jit a3", registering, 1)
		c.join(t.Context(), "session", changing, 1)
		c.join(t.Context(), "jit b1", registering, 2)
		c.join(t.Context(), "removal", removing, 0)
		leave()
		synctest.Wait()
		c.leave(round, unknown)
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

func TestLookupsComeThroughAnEndlessBurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{limiter: newLimiter(1)}
		round, err := c.enter(t.Context(), looking, 0)
		if err != nil {
			t.Fatal(err)
		}
		c.join(t.Context(), "lookup", looking, 1)
		for range 2 * outOfTurn {
			c.join(t.Context(), "jit", registering, 1)
		}
		c.leave(round, unknown)
		synctest.Wait()
		if at := cmp.Diff("lookup", c.served[outOfTurn-2]); at != "" {
			t.Errorf("served %v", c.served)
		}
	})
}

func TestLimitFollowsTheAnswers(t *testing.T) {
	type answers struct {
		calls int // under way at once; then all end
		end   bearing
	}
	for name, tc := range map[string]struct {
		most int
		then []answers
		want int
	}{
		"first":                            {most: mostParallel, want: firstParallel},
		"bounded by options":               {most: 4, want: 4},
		"one more per limit's worth":       {most: mostParallel, then: []answers{{32, good}, {32, good}}, want: 33},
		"light load proves nothing":        {most: mostParallel, then: []answers{{8, good}, {8, good}, {8, good}, {8, good}, {8, good}, {8, good}}, want: firstParallel},
		"halved once per round trip":       {most: mostParallel, then: []answers{{32, overloaded}}, want: 16},
		"halved by the next again":         {most: mostParallel, then: []answers{{32, overloaded}, {16, overloaded}}, want: 8},
		"never below one":                  {most: 2, then: []answers{{1, overloaded}, {1, overloaded}, {1, overloaded}}, want: 1},
		"recovers from one":                {most: 3, then: []answers{{1, overloaded}, {1, overloaded}, {1, good}, {2, good}, {2, good}}, want: 3},
		"who was not called tells nothing": {most: mostParallel, then: []answers{{32, unknown}}, want: firstParallel},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLimiter(tc.most)
			for _, a := range tc.then {
				rounds := make([]int, a.calls)
				for i := range rounds {
					var err error
					if rounds[i], err = l.enter(t.Context(), looking, 0); err != nil {
						t.Fatal(err)
					}
				}
				for _, round := range rounds {
					l.leave(round, a.end)
				}
			}
			if got := int(l.limit + 1e-9); got != tc.want {
				t.Errorf("limit %v; want %d", l.limit, tc.want)
			}
		})
	}
}

func TestWhoWaitsTooLongLeaves(t *testing.T) {
	l := newLimiter(1)
	round, err := l.enter(t.Context(), looking, 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.enter(ctx, removing, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	l.leave(round, good)
	if l.underWay != 0 || len(l.waiting[removing].order) != 0 {
		t.Errorf("left behind: %+v", l)
	}
}
