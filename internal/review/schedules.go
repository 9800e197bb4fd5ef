// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
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
	mayDiffer := p.before.digest != p.after.digest || p.shown.Change == Changed && (p.fields.touches("spec.scale") || p.fields.touches("metadata"))
	if !mayDiffer || p.before.asked.inForce() != p.after.asked.inForce() || p.head.rests() {
		return ""
	}
	times, isAll := c.changesInYear(p)
	times = append(times, c.changesInWeek(p)...)
	slices.SortFunc(times, time.Time.Compare)
	for _, at := range slices.Compact(times) {
		before, after := c.base.scaling(c.ctx, p.base, at), c.head.scaling(c.ctx, p.head, at)
		if was, is := before.inForce(), after.inForce(); was != is {
			return fmt.Sprintf("From %s on, its limits are %s instead of %s.", at.UTC().Format(time.RFC3339), scaleText(is), scaleText(was))
		}
	}
	if !isAll {
		c.unsearched++
	}
	return ""
}

// changesInWeek returns the first times of the week at which the limits of the two sides differ. The limits of rules that read
// the clock may differ only at the moment of the hour for which they were evaluated, which is then in the result, too. So the
// caller evaluates the policies at each of these times.
func (c *comparison) changesInWeek(p *pair) (times []time.Time) {
	before, after := p.before.week().steps, p.after.week().steps
	for _, steps := range [][]Span{before, after} {
		differing := slices.DeleteFunc(slices.Clone(steps), func(s Span) bool { return scaleAt(before, s.From) == scaleAt(after, s.From) })
		for _, s := range differing[:min(len(differing), maxAsked)] {
			times = append(times, s.From, c.base.moment(p.base, s.From), c.head.moment(p.head, s.From))
		}
	}
	return times
}

// scaleAt returns the limits at a time.
func scaleAt(steps []Span, at time.Time) (scale policy.Scale) {
	after, _ := slices.BinarySearchFunc(steps, at, func(s Span, at time.Time) int { return cmp.Or(s.From.Compare(at), -1) })
	if after == 0 {
		return scale
	}
	return steps[after-1].Scale
}

// changesInYear returns the times at which policies request an evaluation, and the first times at which the schedules of both
// sides set numbers for which the limits can differ. isAll is false if there are more.
func (c *comparison) changesInYear(p *pair) (times []time.Time, isAll bool) {
	asked, isAll := []time.Time{p.before.asked.answer.Until, p.after.asked.answer.Until}, true
	times = slices.Clone(asked)
	for _, side := range []*pool{p.base, p.head} {
		changes := side.plan.Changes(c.in.At, c.in.At.Add(year), side.Spec.Scale, maxSwitches)
		isAll = isAll && len(changes) < maxSwitches
		for _, change := range changes {
			times = append(times, change.At)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	isAlike, readsClock := p.before.digest == p.after.digest && !p.fields.touches("metadata"), p.base.readsClock || p.head.readsClock
	known := map[[2]v1alpha1.Scale]bool{}
	times = slices.DeleteFunc(slices.Compact(times), func(at time.Time) bool {
		if !at.After(c.in.At) || at.After(c.in.At.Add(year)) {
			return true
		}
		numbers := [2]v1alpha1.Scale{p.base.plan.At(at, p.base.Spec.Scale).Scale, p.head.plan.At(at, p.head.Spec.Scale).Scale}
		isKnown := known[numbers] && !readsClock && !slices.Contains(asked, at)
		known[numbers] = true
		return isKnown || isAlike && numbers[0] == numbers[1]
	})
	return times[:min(len(times), maxAsked)], isAll && len(times) <= maxAsked
}
