// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/policy"
)

// maxQuestions is the approximate maximum number of evaluations with which excess determines how many runners the pools of
// a side can have together. It suffices for 200 pools whose rules read the clock, so that each hour of the week differs.
const maxQuestions = 40_000

// share subtracts from the maximum cost of all pools the part that they cannot reach because of ceilings that they share.
// It reports whether there is such a part. If the ceilings were not evaluated for the whole week, the maximum is an upper
// bound. The typical cost at the base is then a lower bound, so that it does not hide an increase.
func (c *comparison) share(all *Amounts, s *side, unbounded []string) bool {
	if all == nil {
		return false
	}
	excess, left := s.excess(c.ctx)
	s.isPartlyShared = left > 0
	*all.Max = cents(*all.Max - cents(excess))
	if s != c.base {
		left = 0
	}
	if excess+left > 0 && len(unbounded) == 0 {
		all.Typical = min(all.Typical, max(all.Min, cents(*all.Max-left)))
	}
	return excess > 0
}

// sharers returns the priced pools of a side that have a max and whose limits depend on the usage of other pools, the most
// expensive runners first.
func (s *side) sharers() []*judgement {
	sharers := slices.DeleteFunc(slices.Clone(s.judged), func(j *judgement) bool {
		return j.rate == 0 || j.pool.rests() || !j.pool.bound.Needs().Usage() || j.week().unbounded
	})
	slices.SortStableFunc(sharers, func(a, b *judgement) int { return cmp.Compare(b.rate, a.rate) })
	return sharers
}

// excess returns the part of the monthly maximum cost that pools under shared ceilings can never incur together. It fills
// the ceilings greedily, the most expensive pool first. If s.questions does not allow this for the whole week, excess
// examines the longest periods, and left is the maximum cost of the others without ceilings.
func (s *side) excess(ctx context.Context) (excess, left float64) {
	sharers := s.sharers()
	for _, p := range sharers {
		left += p.week().most * p.rate
	}
	periods, fleet := s.periodsOf(sharers), s.idleFleet()
	examined := periods[:min(len(periods), s.questions/(len(sharers)+1)+1)]
	for _, period := range examined {
		alone := 0.0
		for _, p := range sharers {
			alone += float64(scaleAt(p.week().steps, period.from).Max) * p.rate
		}
		excess += period.share() * (alone - s.fill(ctx, fleet, sharers, period.from))
		left -= period.share() * alone
	}
	if len(examined) == len(periods) {
		left = 0
	}
	return max(0, excess), max(0, left)
}

// period is a part of the week.
type period struct{ from, to time.Time }

// share returns the length of the period as a share of the week.
func (p period) share() float64 { return float64(p.to.Sub(p.from)) / float64(lookout) }

// periodsOf returns the periods of the week in which the limits of the pools do not change, the longest first. If rules read
// the clock, their limits may change in each hour.
func (s *side) periodsOf(sharers []*judgement) (periods []period) {
	end := s.in.At.Add(lookout)
	times := []time.Time{end}
	for _, p := range sharers {
		for _, step := range p.week().steps {
			times = append(times, step.From)
		}
	}
	if slices.ContainsFunc(sharers, func(p *judgement) bool { return p.pool.readsClock }) {
		for hour := s.in.At.Truncate(time.Hour).Add(time.Hour); hour.Before(end); hour = hour.Add(time.Hour) {
			times = append(times, hour)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	times = slices.CompactFunc(times, time.Time.Equal)
	for i, to := range times[1:] {
		periods = append(periods, period{times[i], to})
	}
	slices.SortStableFunc(periods, func(a, b period) int { return cmp.Compare(b.share(), a.share()) })
	return periods
}

// fill returns the monthly cost if each pool in turn gets the maximum number of runners that the pools before it leave. The
// other pools of the fleet are idle.
func (s *side) fill(ctx context.Context, fleet *policy.Fleet, sharers []*judgement, at time.Time) (total float64) {
	for _, p := range sharers {
		fleet.Put(p.pool.input, policy.Needs{}, 0, 0)
	}
	for _, p := range sharers {
		asked := *p.pool
		asked.usage = fleet.Usage(asked.input, asked.bound.Needs())
		a := s.decide(ctx, &asked, asked.plan.At(at, asked.Spec.Scale), s.moment(&asked, at))
		if runners := a.inForce().Max; runners != v1alpha1.UnboundedMax {
			fleet.Put(asked.input, policy.Needs{}, runners, runners)
			total += float64(runners) * p.rate
		}
	}
	return total
}
