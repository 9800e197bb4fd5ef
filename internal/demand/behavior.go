// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"fmt"
	"math"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Bounds are the limits of the number of runners. They apply at once: behavior never keeps a number above Max or below
// Min. If the two contradict each other, Max takes precedence.
type Bounds struct{ Min, Max int32 }

func (b Bounds) cut(n int32) int32 { return min(max(n, b.Min), b.Max) }

// Step is the result of applying behavior to a wanted number.
type Step struct {
	// Number of runners to have now.
	Number int32
	// Reason why Number differs from the wanted number, without a full stop; empty if it does not differ.
	Reason string
	// Next is how long until the number may change although the wanted number stays the same; 0 if it will not.
	Next time.Duration
}

// Behave returns the number of runners to have now, on the way from before to wanted, and records it in the history.
// Without a behavior, it returns the wanted number. If Behave has returned a number earlier, it starts from that number
// instead of before, even if the pool did not reach it.
//
// It applies the steps of a HorizontalPodAutoscaler: first the stabilization windows, then the tolerance, then the
// policies. It differs in three points. A wanted number stays in force until another number is wanted, even if the pool
// is not evaluated in the meantime. A percentage allows a change of at least 1, so that a pool can grow from 0. The
// tolerance never prevents a change to 0.
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

// judge applies the stabilization windows, the tolerance and the policies of a behavior.
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

// stabilize lets the number rise to the smallest number that was wanted in the window of scaleUp, and fall to the
// largest number that was wanted in the window of scaleDown.
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

// isSmall reports whether a change is within the tolerance, which is a fraction of the previous number.
func isSmall(tolerance *v1alpha1.Quantity, before, number int32) bool {
	if tolerance == nil || number == before || number == 0 {
		return false
	}
	by := math.Abs(float64(number) - float64(before))
	part := tolerance.Float() * float64(before)
	return by <= part
}

// limit returns the number that the policies allow, a description of the limiting policy, and how long until the
// policies may allow more.
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
	// room is how many runners the policies allow to add or to remove; -1 before the first policy.
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

// allowance returns how many runners a policy allows to be added or removed, given the number at the start of its period.
func allowance(p v1alpha1.ScalingPolicy, begun int64) int64 {
	if p.Type != v1alpha1.ScalePercent {
		return int64(p.Value)
	}
	part := begun * int64(p.Value)
	return max(1, (part+99)/100)
}

// sooner returns the shorter of two durations, where 0 means none.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}
