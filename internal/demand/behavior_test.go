// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package demand_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/demand"
)

var start = time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)

// anything are the widest possible bounds.
var anything = demand.Bounds{Max: demand.MostJobs}

func pods(n, seconds int32) v1alpha1.ScalingPolicy {
	return v1alpha1.ScalingPolicy{Type: v1alpha1.ScalePods, Value: n, PeriodSeconds: seconds}
}

func percent(n, seconds int32) v1alpha1.ScalingPolicy {
	return v1alpha1.ScalingPolicy{Type: v1alpha1.ScalePercent, Value: n, PeriodSeconds: seconds}
}

// at is the wanted number at a time after the start, and the expected result.
type at struct {
	second       int
	wanted, want int32
	next         time.Duration
}

func TestBehave(t *testing.T) {
	up := func(r v1alpha1.ScalingRules) *v1alpha1.ScalingBehavior { return &v1alpha1.ScalingBehavior{ScaleUp: &r} }
	down := func(r v1alpha1.ScalingRules) *v1alpha1.ScalingBehavior {
		return &v1alpha1.ScalingBehavior{ScaleDown: &r}
	}
	for name, tc := range map[string]struct {
		behavior *v1alpha1.ScalingBehavior
		bounds   demand.Bounds
		begin    int32
		steps    []at
	}{
		"without a behavior at once": {
			begin: 3, steps: []at{{0, 10, 10, 0}, {1, 0, 0, 0}},
		},
		"the largest of a window holds when it falls": {
			behavior: down(v1alpha1.ScalingRules{StabilizationWindowSeconds: new(int32(300))}),
			begin:    10,
			steps: []at{
				{0, 10, 10, 0},
				{100, 4, 10, 300 * time.Second}, // 10 was wanted until now
				{200, 6, 10, 200 * time.Second},
				{250, 5, 10, 150 * time.Second},
				{400, 5, 6, 100 * time.Second}, // 10 ended 300 s ago; 4 ended at 200, and 6 at 250
				{549, 5, 6, time.Second},
				{550, 5, 5, 0},
				{560, 20, 20, 0}, // scales up at once
			},
		},
		"the smallest of a window holds when it rises": {
			behavior: up(v1alpha1.ScalingRules{StabilizationWindowSeconds: new(int32(60))}),
			begin:    2,
			steps: []at{
				{0, 2, 2, 0}, {10, 9, 2, 60 * time.Second}, {40, 7, 2, 30 * time.Second}, {70, 8, 7, 30 * time.Second}, {75, 1, 1, 0},
				{80, 8, 1, 20 * time.Second},
			},
		},
		"policies allow so much in a time": {
			behavior: up(v1alpha1.ScalingRules{Policies: []v1alpha1.ScalingPolicy{pods(4, 60)}}),
			steps:    []at{{0, 20, 4, 60 * time.Second}, {30, 20, 4, 30 * time.Second}, {60, 20, 8, 60 * time.Second}, {120, 10, 10, 0}, {121, 14, 12, 59 * time.Second}},
		},
		"a percentage is of the number when the period began, rounded up": {
			behavior: up(v1alpha1.ScalingRules{Policies: []v1alpha1.ScalingPolicy{percent(50, 60)}}),
			begin:    5,
			steps:    []at{{0, 100, 8, 60 * time.Second}, {59, 100, 8, time.Second}, {60, 100, 12, 60 * time.Second}},
		},
		"a percentage leads up from zero, and down to zero": {
			behavior: &v1alpha1.ScalingBehavior{
				ScaleUp:   &v1alpha1.ScalingRules{Policies: []v1alpha1.ScalingPolicy{percent(100, 60)}},
				ScaleDown: &v1alpha1.ScalingRules{Policies: []v1alpha1.ScalingPolicy{percent(10, 60)}},
			},
			steps: []at{{0, 3, 1, 60 * time.Second}, {60, 3, 2, 60 * time.Second}, {120, 3, 3, 0}, {600, 0, 2, 60 * time.Second}, {660, 0, 1, 60 * time.Second}, {720, 0, 0, 0}},
		},
		"of several policies the one that allows most": {
			behavior: up(v1alpha1.ScalingRules{Policies: []v1alpha1.ScalingPolicy{percent(100, 15), pods(4, 15)}}),
			begin:    1,
			steps:    []at{{0, 100, 5, 15 * time.Second}, {15, 100, 10, 15 * time.Second}},
		},
		"of several policies the one that allows least": {
			behavior: down(v1alpha1.ScalingRules{SelectPolicy: v1alpha1.SelectMin, Policies: []v1alpha1.ScalingPolicy{pods(4, 60), percent(10, 60)}}),
			begin:    20,
			steps:    []at{{0, 0, 18, 60 * time.Second}, {60, 0, 16, 60 * time.Second}},
		},
		"what rose in the period may fall with it": {
			behavior: down(v1alpha1.ScalingRules{Policies: []v1alpha1.ScalingPolicy{pods(2, 60)}}),
			begin:    10,
			steps:    []at{{0, 7, 8, 60 * time.Second}, {10, 12, 12, 0}, {20, 0, 8, 40 * time.Second}, {60, 0, 6, 10 * time.Second}},
		},
		"disabled is no change in that direction": {
			behavior: down(v1alpha1.ScalingRules{SelectPolicy: v1alpha1.SelectDisabled}),
			begin:    5,
			steps:    []at{{0, 0, 5, 0}, {1, 8, 8, 0}},
		},
		"a small change is left alone, but for the last one to zero": {
			behavior: &v1alpha1.ScalingBehavior{
				ScaleUp:   &v1alpha1.ScalingRules{Tolerance: new(v1alpha1.Quantity("0.1"))},
				ScaleDown: &v1alpha1.ScalingRules{Tolerance: new(v1alpha1.Quantity("500m"))},
			},
			begin: 20,
			steps: []at{{0, 22, 20, 0}, {1, 23, 23, 0}, {2, 12, 23, 0}, {3, 11, 11, 0}, {4, 0, 0, 0}, {5, 1, 1, 0}, {6, 0, 0, 0}},
		},
		"bounds hold at once": {
			behavior: &v1alpha1.ScalingBehavior{
				ScaleUp:   &v1alpha1.ScalingRules{Policies: []v1alpha1.ScalingPolicy{pods(1, 60)}},
				ScaleDown: &v1alpha1.ScalingRules{SelectPolicy: v1alpha1.SelectDisabled},
			},
			bounds: demand.Bounds{Min: 3, Max: 6},
			steps:  []at{{0, 0, 3, 0}, {60, 10, 4, 60 * time.Second}, {600, 10, 5, 60 * time.Second}, {1200, 10, 6, 0}, {1300, 0, 6, 0}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.bounds == (demand.Bounds{}) {
				tc.bounds = anything
			}
			var h demand.History
			before := tc.begin
			for _, s := range tc.steps {
				got := h.Behave(tc.behavior, tc.bounds, before, s.wanted, start.Add(time.Duration(s.second)*time.Second))
				if got.Number != s.want || got.Next != s.next {
					t.Errorf("after %d s, %d wanted: got %d and again in %s (%s); want %d and %s", s.second, s.wanted, got.Number, got.Next, got.Reason, s.want, s.next)
				}
				if got.Number == s.wanted && got.Reason != "" {
					t.Errorf("after %d s, a reason for what is wanted: %s", s.second, got.Reason)
				}
				before = got.Number
			}
		})
	}
}

func TestBehaveSaysWhy(t *testing.T) {
	for name, tc := range map[string]struct {
		behavior v1alpha1.ScalingBehavior
		want     string
	}{
		"a window": {
			v1alpha1.ScalingBehavior{ScaleDown: &v1alpha1.ScalingRules{StabilizationWindowSeconds: new(int32(300))}},
			"2 wanted, kept to the largest of the last 5m0s",
		},
		"a policy": {
			v1alpha1.ScalingBehavior{ScaleDown: &v1alpha1.ScalingRules{Policies: []v1alpha1.ScalingPolicy{pods(1, 60)}}},
			"2 wanted, changed by 1 runner in 1m0s at most",
		},
		"a percentage": {
			v1alpha1.ScalingBehavior{ScaleDown: &v1alpha1.ScalingRules{Policies: []v1alpha1.ScalingPolicy{percent(10, 60)}}},
			"2 wanted, changed by 10 % in 1m0s at most",
		},
		"disabled": {
			v1alpha1.ScalingBehavior{ScaleDown: &v1alpha1.ScalingRules{SelectPolicy: v1alpha1.SelectDisabled}},
			"2 wanted, kept at 10: no change in this direction",
		},
		"a tolerance": {
			v1alpha1.ScalingBehavior{ScaleDown: &v1alpha1.ScalingRules{Tolerance: new(v1alpha1.Quantity("0.9"))}},
			"2 wanted, which is within the tolerance of 0.9",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var h demand.History
			h.Behave(nil, anything, 0, 10, start)
			got := h.Behave(&tc.behavior, anything, 10, 2, start.Add(2*time.Minute))
			if got.Reason != tc.want {
				t.Errorf("reason %q, want %q", got.Reason, tc.want)
			}
		})
	}
}

func TestRestartMakesNothingFaster(t *testing.T) {
	b := &v1alpha1.ScalingBehavior{
		ScaleUp:   &v1alpha1.ScalingRules{StabilizationWindowSeconds: new(int32(120)), Policies: []v1alpha1.ScalingPolicy{pods(5, 600)}},
		ScaleDown: &v1alpha1.ScalingRules{StabilizationWindowSeconds: new(int32(300))},
	}
	last := &v1alpha1.Decision{Time: metav1.NewTime(start), Desired: 6, Before: &v1alpha1.DecidedNumbers{Desired: 1}}
	for name, tc := range map[string]struct {
		after        time.Duration
		wanted, want int32
	}{
		"the window of a fall begins anew":            {time.Hour, 0, 6},
		"the window of a rise begins anew":            {time.Hour, 9, 6},
		"a decision of the future is one of now":      {-time.Hour, 0, 6},
		"what was wanted all the time may be at once": {time.Hour, 6, 6},
	} {
		t.Run(name, func(t *testing.T) {
			now := start.Add(tc.after)
			h := demand.Rebuilt(last, now)
			if got := h.Behave(b, anything, 6, tc.wanted, now); got.Number != tc.want {
				t.Errorf("got %d (%s), want %d", got.Number, got.Reason, tc.want)
			}
		})
	}
	h := demand.Rebuilt(last, start.Add(time.Minute))
	h.Behave(b, anything, 6, 20, start.Add(time.Minute))
	if got := h.Behave(b, anything, 6, 20, start.Add(3*time.Minute)); got.Number != 6 {
		t.Errorf("the last decision's rise isn't counted by policies: got %d (%s)", got.Number, got.Reason)
	}
	if got := h.Behave(b, anything, 6, 20, start.Add(10*time.Minute)); got.Number != 11 {
		t.Errorf("after its period: got %d (%s), want 11", got.Number, got.Reason)
	}
	fresh := demand.Rebuilt(nil, start)
	if got := fresh.Behave(b, anything, 0, 4, start); got.Number != 4 {
		t.Errorf("a new pool: got %d (%s), want 4", got.Number, got.Reason)
	}
}

// A second evaluation starts from the result of the first, even if that has not been stored yet.
func TestBehaveRemembersWhatItGave(t *testing.T) {
	b := &v1alpha1.ScalingBehavior{ScaleUp: &v1alpha1.ScalingRules{Policies: []v1alpha1.ScalingPolicy{pods(4, 60)}}}
	var h demand.History
	for i := range 3 {
		if got := h.Behave(b, anything, 10, 20, start.Add(time.Duration(i)*time.Second)); got.Number != 14 {
			t.Errorf("time %d: got %d (%s), want 14", i+1, got.Number, got.Reason)
		}
	}
	if got := h.Behave(b, anything, 10, 20, start.Add(time.Minute)); got.Number != 18 {
		t.Errorf("a minute later: got %d (%s), want 18", got.Number, got.Reason)
	}
}

// The number always stays between the wanted numbers.
func TestTheNumberStaysWithinWhatWasWanted(t *testing.T) {
	b := &v1alpha1.ScalingBehavior{
		ScaleUp:   &v1alpha1.ScalingRules{StabilizationWindowSeconds: new(int32(90)), Policies: []v1alpha1.ScalingPolicy{percent(50, 60), pods(5, 30)}},
		ScaleDown: &v1alpha1.ScalingRules{StabilizationWindowSeconds: new(int32(600)), Policies: []v1alpha1.ScalingPolicy{pods(7, 60)}},
	}
	random := rand.New(rand.NewPCG(5, 8))
	var kept demand.History
	now, number := start, int32(0)
	for i := range 5000 {
		now = now.Add(time.Duration(random.IntN(20_000)) * time.Millisecond)
		wanted := random.Int32N(200)
		got := kept.Behave(b, anything, number, wanted, now)
		if got.Number < min(number, wanted) || got.Number > max(number, wanted, 199) || (got.Number != wanted && (got.Reason == "" || got.Next < 0)) {
			t.Fatalf("step %d: from %d to %d wanted: %+v", i, number, wanted, got)
		}
		number = got.Number
	}
	// If nothing is wanted for long, the number falls to zero.
	for range 200 {
		now = now.Add(time.Minute)
		number = kept.Behave(b, anything, number, 0, now).Number
	}
	if number != 0 {
		t.Errorf("%d after hours of 0 wanted", number)
	}
}

// Evaluating only at Next gives the same result, as soon, as evaluating every second.
func TestNextIsWhenItChanges(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 200 {
		b := &v1alpha1.ScalingBehavior{
			ScaleUp:   &v1alpha1.ScalingRules{StabilizationWindowSeconds: new(random.Int32N(100)), Policies: []v1alpha1.ScalingPolicy{pods(1+random.Int32N(5), 1+random.Int32N(60))}},
			ScaleDown: &v1alpha1.ScalingRules{StabilizationWindowSeconds: new(random.Int32N(300)), Policies: []v1alpha1.ScalingPolicy{percent(1+random.Int32N(100), 1+random.Int32N(60))}},
		}
		var often, seldom demand.History
		was, is := int32(0), int32(0)
		wanted, due := int32(0), 0
		var said []string
		for s := range 3000 { // 30 runners at one a minute, after 1000 s of changes
			now := start.Add(time.Duration(s) * time.Second)
			if s < 1000 && random.IntN(50) == 0 {
				wanted, due = random.Int32N(30), s
			}
			was = often.Behave(b, anything, was, wanted, now).Number
			if s == due {
				got := seldom.Behave(b, anything, is, wanted, now)
				is, due = got.Number, s+int((got.Next+time.Second-1)/time.Second)
				said = append(said, fmt.Sprintf("%d s: %+v", s, got))
			}
			if was != is {
				t.Fatalf("case %d, %d s: %d when looked at each second, %d when looked at as told:\n%s", i, s, was, is, strings.Join(said, "\n"))
			}
		}
		if is != wanted {
			t.Fatalf("case %d: %d in the end, %d wanted", i, is, wanted)
		}
	}
}
