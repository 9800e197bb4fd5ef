// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"fmt"
	"slices"
	"time"

	"github.com/corral-dev/corral/internal/policy"
)

const (
	// lookout is the period after the time of the review for which costs and limits are evaluated.
	lookout = 7 * 24 * time.Hour
	// year is the period in which the review looks for the first difference between the limits of both sides, at changes of
	// schedules and at times for which policies request an evaluation.
	year = 366 * 24 * time.Hour
	// maxSwitches is the maximum number of schedule changes in a year that are considered; two daily schedules have 1,464.
	// maxAsked is for how many of them the policies are evaluated.
	maxSwitches = 1500
	maxAsked    = 32
)

// laterText describes when the limits of a pool begin to differ from the limits at the base, if they are equal now; empty
// if no difference was found.
func (c *comparison) laterText(p *pair) string {
	mayDiffer := p.before.digest != p.after.digest || p.shown.Change == Changed && (p.shown.touches("spec.scale") || p.shown.touches("metadata"))
	if !mayDiffer || p.before.asked.inForce() != p.after.asked.inForce() || p.head.rests() {
		return ""
	}
	for _, at := range slices.SortedFunc(slices.Values(append(c.changesInWeek(p), c.changesInYear(p)...)), time.Time.Compare) {
		before, after := c.base.scaling(c.ctx, p.base, at), c.head.scaling(c.ctx, p.head, at)
		if was, is := before.inForce(), after.inForce(); was != is {
			return fmt.Sprintf("From %s on, its limits are %s instead of %s.", at.UTC().Format(time.RFC3339), scaleText(is), scaleText(was))
		}
	}
	return ""
}

// changesInWeek returns the times of the week at which the limits of the two sides differ. Because the sides may have
// combined close changes differently, the caller evaluates the policies at each of these times.
func (c *comparison) changesInWeek(p *pair) (times []time.Time) {
	before, after := p.before.week().steps, p.after.week().steps
	for _, s := range slices.Concat(before, after) {
		if scaleAt(before, s.From) != scaleAt(after, s.From) {
			times = append(times, s.From)
		}
	}
	return times
}

// scaleAt returns the limits at a time.
func scaleAt(steps []Span, at time.Time) (scale policy.Scale) {
	for _, s := range steps {
		if !s.From.After(at) {
			scale = s.Scale
		}
	}
	return scale
}

// changesInYear returns the times of schedule changes on both sides, and the times at which policies request an evaluation,
// without times at which the limits cannot differ.
func (c *comparison) changesInYear(p *pair) []time.Time {
	times := []time.Time{p.before.asked.answer.Until, p.after.asked.answer.Until}
	for _, side := range []*pool{p.base, p.head} {
		for _, change := range side.plan.Changes(c.in.At, c.in.At.Add(year), side.Spec.Scale, maxSwitches) {
			times = append(times, change.At)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	times = slices.DeleteFunc(slices.Compact(times), func(at time.Time) bool {
		isAlike := p.before.digest == p.after.digest && p.base.plan.At(at, p.base.Spec.Scale).Scale == p.head.plan.At(at, p.head.Spec.Scale).Scale
		return isAlike && !p.shown.touches("metadata") || !at.After(c.in.At) || at.After(c.in.At.Add(year))
	})
	return times[:min(len(times), maxAsked)]
}
