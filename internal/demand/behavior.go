// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"fmt"
	"math"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Bounds hold in any case, at once: behavior neither keeps a number above Max nor below Min. Max comes first.
type Bounds struct{ Min, Max int32 }

func (b Bounds) cut(n int32) int32 { return min(max(n, b.Min), b.Max) }

// Step is what behavior makes of a wanted number.
type Step struct {
	// Number to have now.
	Number int32
	// Reason why it isn't what is wanted, without a full stop; empty if it is.
	Reason string
	// Next is after what time to look again; 0 for no time.
	Next time.Duration
}

// Behave says how far the number goes from before to wanted now, and notes it in the history. Without a behavior, that is at once.
// It goes by the number that it gave last, whatever became of that; before is taken where it gave none.
//
// The terms are those of a HorizontalPodAutoscaler: first what was wanted in the stabilization windows, then the tolerance, then how
// much the policies allow. Other than there, what was wanted holds until something else is, whether or not it was looked at;
// a percentage allows a change of 1 at least, so that there is a way from 0; and the way to 0 is never too small a change.
func (h *History) Behave(b *v1alpha1.ScalingBehavior, bounds Bounds, before, wanted int32, now time.Time) Step {
	if h.number != nil {
		before = *h.number
	}
	before, wanted = max(0, before), max(0, wanted)
	h.want(wanted, now)
	s := Step{Number: wanted}
	if b != nil {
		s = h.judge(b, before, wanted, now)
	}
	s.Number = bounds.cut(s.Number)
	if s.Number == bounds.cut(wanted) {
		s = Step{Number: s.Number}
	}
	h.did(before, s.Number, now)
	h.number = new(s.Number)
	return s
}

// judge goes through the steps of a behavior.
func (h *History) judge(b *v1alpha1.ScalingBehavior, before, wanted int32, now time.Time) Step {
	up, down := rulesOr(b.ScaleUp), rulesOr(b.ScaleDown)
	s := h.stabilize(before, wanted, window(up), window(down), now)
	rules := up
	if s.Number < before {
		rules = down
	}
	if isSmall(rules.Tolerance, before, s.Number) {
		s = Step{Number: before, Reason: fmt.Sprintf("%d wanted, which is within the tolerance of %s", wanted, *rules.Tolerance), Next: s.Next}
	}
	limit, by, next := h.limit(rules, before, s.Number, now)
	if limit != s.Number {
		return Step{Number: limit, Reason: fmt.Sprintf("%d wanted, %s", wanted, by), Next: sooner(s.Next, next)}
	}
	return s
}

func rulesOr(r *v1alpha1.ScalingRules) *v1alpha1.ScalingRules {
	if r == nil {
		return &v1alpha1.ScalingRules{}
	}
	return r
}

func window(r *v1alpha1.ScalingRules) time.Duration {
	if r.StabilizationWindowSeconds == nil {
		return 0
	}
	return time.Duration(max(0, *r.StabilizationWindowSeconds)) * time.Second
}

// stabilize keeps the number between the smallest that was wanted in the one window and the largest in the other.
func (h *History) stabilize(before, wanted int32, up, down time.Duration, now time.Time) Step {
	least, _, nextUp := h.wantedIn(up, now)
	_, most, nextDown := h.wantedIn(down, now)
	switch {
	case before < least:
		return stabilized(least, wanted, "smallest", up, nextUp)
	case before > most:
		return stabilized(most, wanted, "largest", down, nextDown)
	case wanted > before:
		return stabilized(before, wanted, "smallest", up, nextUp)
	case wanted < before:
		return stabilized(before, wanted, "largest", down, nextDown)
	}
	return Step{Number: before}
}

func stabilized(number, wanted int32, which string, window, next time.Duration) Step {
	if number == wanted {
		return Step{Number: number}
	}
	return Step{Number: number, Reason: fmt.Sprintf("%d wanted, kept to the %s of the last %s", wanted, which, window), Next: next}
}

// isSmall reports whether a change is within a part of the number before.
func isSmall(tolerance *v1alpha1.Quantity, before, number int32) bool {
	if tolerance == nil || number == before || number == 0 {
		return false
	}
	by := math.Abs(float64(number) - float64(before))
	part := tolerance.Float() * float64(before)
	return by <= part
}

// limit is how far policies let the number go, what says so, and when that is to be looked at again.
func (h *History) limit(r *v1alpha1.ScalingRules, before, number int32, now time.Time) (limit int32, by string, next time.Duration) {
	if number == before || (len(r.Policies) == 0 && r.SelectPolicy != v1alpha1.SelectDisabled) {
		return number, "", 0
	}
	direction := int64(1)
	if number < before {
		direction = -1
	}
	if r.SelectPolicy == v1alpha1.SelectDisabled {
		return before, fmt.Sprintf("kept at %d: no change in this direction", before), 0
	}
	// Room is how far it may go from before, in the direction.
	room := int64(-1)
	for _, p := range r.Policies {
		period := time.Duration(p.PeriodSeconds) * time.Second
		risen, ripe := h.changedIn(period, now)
		next = sooner(sooner(next, ripe), period)
		begun := max(0, int64(before)-risen)
		allowed := max(0, direction*(begun-int64(before))+allowance(p, begun))
		if room < 0 || (r.SelectPolicy == v1alpha1.SelectMin) == (allowed < room) {
			room, by = allowed, fmt.Sprintf("changed by %d %s in %s at most", p.Value, unit(p.Type, p.Value), period)
		}
	}
	if room >= direction*(int64(number)-int64(before)) {
		return number, "", 0
	}
	return int32(max(0, int64(before)+direction*room)), by, next //nolint:gosec // it is between before and number
}

func unit(t v1alpha1.ScalingPolicyType, n int32) string {
	switch {
	case t == v1alpha1.ScalePercent:
		return "%"
	case n == 1:
		return "runner"
	}
	return "runners"
}

// allowance is how many runners a policy allows to come or go, given how many there were.
func allowance(p v1alpha1.ScalingPolicy, begun int64) int64 {
	if p.Type != v1alpha1.ScalePercent {
		return int64(p.Value)
	}
	part := begun * int64(p.Value)
	return max(1, (part+99)/100)
}

// sooner is the shorter of two times, 0 being none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}
