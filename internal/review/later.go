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
	// year is how far schedules, and times that policies name, are looked at for a first difference.
	year = 366 * 24 * time.Hour
	// maxSwitches bounds how many changes of schedules are looked at in it, maxAsked about how many of them policies are asked.
	maxSwitches = 200
	maxAsked    = 32
)

// difference is when a pool first has other numbers than by the base, and which.
type difference struct {
	at      time.Time
	was, is policy.Scale
}

// laterWords say from when on a pool has other numbers than by the base, if it has the same now; empty if there is no such time.
func (c *comparison) laterWords(p *pair) string {
	mayDiffer := p.before.digest != p.after.digest || p.shown.Change == Changed && (p.shown.touches("spec.scale") || p.shown.touches("metadata"))
	if !mayDiffer || p.before.asked.inForce() != p.after.asked.inForce() || p.head.rests() {
		return ""
	}
	first := c.differenceInWeek(p)
	if d := c.differenceInYear(p); first == nil || d != nil && d.at.Before(first.at) {
		first = d
	}
	if first == nil {
		return ""
	}
	return fmt.Sprintf("From %s on it has %s instead of %s.", first.at.UTC().Format(time.RFC3339), scaleWords(first.is, false), scaleWords(first.was, false))
}

// differenceAt asks both sides about a time; nil if they say the same.
func (c *comparison) differenceAt(p *pair, at time.Time) *difference {
	a, b := c.base.scaling(c.ctx, p.base, at), c.head.scaling(c.ctx, p.head, at)
	if was, is := a.inForce(), b.inForce(); was != is {
		return &difference{at, was, is}
	}
	return nil
}

// differenceInWeek is the first in the weeks of both sides.
func (c *comparison) differenceInWeek(p *pair) *difference {
	before, after := c.base.week(c.ctx, p.base, p.before).steps, c.head.week(c.ctx, p.head, p.after).steps
	steps := slices.SortedFunc(slices.Values(slices.Concat(before, after)), func(a, b step) int { return a.from.Compare(b.from) })
	for _, s := range steps {
		if scaleAt(before, s.from) == scaleAt(after, s.from) {
			continue
		}
		// Changes that are close are taken together, and not by both sides alike: what counts is the answer.
		if d := c.differenceAt(p, s.from); d != nil {
			return d
		}
	}
	return nil
}

// scaleAt are the numbers at a time.
func scaleAt(steps []step, at time.Time) (scale policy.Scale) {
	for _, s := range steps {
		if !s.from.After(at) {
			scale = s.scale
		}
	}
	return scale
}

// differenceInYear is the first at a change of the schedules of either side, or when policies want to be asked again.
func (c *comparison) differenceInYear(p *pair) *difference {
	var times []time.Time
	for _, side := range []*pool{p.base, p.head} {
		for _, change := range side.plan.Changes(c.in.At, c.in.At.Add(year), side.Spec.Scale, maxSwitches) {
			times = append(times, change.At)
		}
	}
	times = append(times, p.before.asked.answer.Until, p.after.asked.answer.Until)
	slices.SortFunc(times, time.Time.Compare)
	asked := 0
	for _, at := range slices.Compact(times) {
		isAlike := p.before.digest == p.after.digest && p.base.plan.At(at, p.base.Spec.Scale).Scale == p.head.plan.At(at, p.head.Spec.Scale).Scale
		if isAlike && !p.shown.touches("metadata") || !at.After(c.in.At) || at.After(c.in.At.Add(year)) {
			continue
		}
		if asked++; asked > maxAsked {
			break
		}
		if d := c.differenceAt(p, at); d != nil {
			return d
		}
	}
	return nil
}
