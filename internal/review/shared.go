// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"cmp"
	"slices"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// maxQuestions bounds how often policies of a side are asked what pools have together.
const maxQuestions = 2000

// sharers are the pools of a side that what others have may keep from having more: their rules read that, and they have a rate and a max.
// The dearest are first.
func (c *comparison) sharers(s *side) (sharers []*judgement) {
	for _, p := range c.pairs {
		j := p.after
		if s == c.base {
			j = p.before
		}
		if j != nil && j.rate > 0 && !j.pool.rests() && j.pool.bound.Needs().Usage() && !s.week(c.ctx, j).unbounded {
			sharers = append(sharers, j)
		}
	}
	slices.SortStableFunc(sharers, func(a, b *judgement) int { return cmp.Compare(b.rate, a.rate) })
	return sharers
}

// excess is how much of the highest amounts of pools, by hour, they never have together: one after the other, the dearest first, asks for
// as many runners as it may have beside those of the former.
func (c *comparison) excess(s *side) float64 {
	sharers := c.sharers(s)
	alone, together := 0.0, 0.0
	for _, p := range sharers {
		alone += p.profile.most * p.rate
	}
	moments := momentsOf(sharers)
	for i, at := range moments {
		end := s.in.At.Add(lookout)
		if i+1 < len(moments) {
			end = moments[i+1]
		}
		together += float64(end.Sub(at)) / float64(lookout) * s.fill(c, sharers, at)
	}
	return max(0, alone-together)
}

// momentsOf are the times of the week from which on any of the pools has other numbers; of many, some.
func momentsOf(sharers []*judgement) []time.Time {
	var times []time.Time
	for _, p := range sharers {
		for _, step := range p.profile.steps {
			times = append(times, step.from)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	times = slices.Compact(times)
	every := len(times)*len(sharers)/maxQuestions + 1
	var some []time.Time
	for i := 0; i < len(times); i += every {
		some = append(some, times[i])
	}
	return some
}

// fill is what all pay by hour that have as many runners as the former leave them.
func (s *side) fill(c *comparison, sharers []*judgement, at time.Time) float64 {
	fleet, total := s.idleFleet(), 0.0
	for _, p := range sharers {
		asked := *p.pool
		asked.usage = fleet.Usage(asked.input, asked.bound.Needs())
		a := s.scaling(c.ctx, &asked, at)
		if runners := a.inForce().Max; runners != v1alpha1.UnboundedMax {
			fleet.Grant(asked.input, runners)
			total += float64(runners) * p.rate
		}
	}
	return total
}
