// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/policy"
)

// A review must evaluate hundreds of pools in seconds, although a rule may request another evaluation every minute. So a
// request of a policy for another evaluation is granted after closest at the earliest. After manyChanges evaluations, every
// evaluation is at least closestThen after the previous one, or at the next full hour for rules that read the clock.
const (
	closest     = time.Hour
	manyChanges = 30
	closestThen = 6 * time.Hour
)

// profile describes a pool's number of runners during the week after the review.
type profile struct {
	// floor is the average number of runners without jobs, and most the average max. unbounded is true if there is no max at
	// some time.
	floor, most float64
	unbounded   bool
	steps       []Span // periods in which the limits do not change
}

// price computes the costs of all pools.
func (c *comparison) price() {
	c.comparePrices()
	before, after := cmp.Or(c.base.Prices, c.head.Prices), c.head.Prices
	if after == nil {
		return
	}
	total := &Cost{Currency: after.Currency, Before: &Amounts{Max: new(float64)}, After: &Amounts{Max: new(float64)}}
	isOther := before.Currency != after.Currency
	say(&c.result.Notes, isOther, "What it cost is not told: prices were in %s and are in %s.", before.Currency, after.Currency)
	if isOther || c.base.Unpriced || !c.result.Comparable() {
		before, total.Before = nil, nil
	}
	for _, p := range c.pairs {
		p.shown.Cost = c.costOf(p, before, after)
		total.add(p)
	}
	isShared := c.share(total.Before, c.base, total.UnboundedBefore)
	isShared = c.share(total.After, c.head, total.Unbounded) || isShared
	total.Assumptions = c.assumptions(after, isShared)
	c.result.Cost = total
}

// share subtracts from the maximum cost of all pools the part that they cannot reach because of ceilings that they share.
// It reports whether there is such a part.
func (c *comparison) share(all *Amounts, s *side, unbounded []string) bool {
	if all == nil {
		return false
	}
	excess := cents(s.excess(c.ctx))
	*all.Max = cents(*all.Max - excess)
	if excess > 0 && len(unbounded) == 0 {
		all.Typical = min(all.Typical, *all.Max)
	}
	return excess > 0
}

// comparePrices reports the differences between the price files.
func (c *comparison) comparePrices() {
	if c.base.Unpriced || !c.result.Comparable() {
		return
	}
	before, after := cmp.Or(c.base.Prices, &Prices{}), cmp.Or(c.head.Prices, &Prices{})
	if fields := specFields(&before.object, &after.object); len(fields) > 0 {
		c.result.Prices = &PriceChange{before.object.File, after.object.File, fields}
	}
}

// costOf returns the cost of a pool; nil if neither side has a known rate.
func (c *comparison) costOf(p *pair, before, after *Prices) *Cost {
	cost := &Cost{Currency: after.Currency}
	was, is, _ := p.runs()
	cost.Before, cost.After = c.amounts(cost, p.before, was, before), c.amounts(cost, p.after, is, after)
	if cost.Before == nil && cost.After == nil {
		return nil
	}
	return cost
}

// amounts returns the cost of a pool on one side, and records the rate. runs is the pool whose template the runners use. If
// it is nil, because policies deny the template, the cost is zero. The result is nil if the side has no pool or no prices,
// or if the rate is unknown.
func (c *comparison) amounts(cost *Cost, j *judgement, runs *pool, prices *Prices) *Amounts {
	if j == nil || prices == nil {
		return nil
	}
	if runs == nil {
		cost.Basis = "denied: no runners"
		return &Amounts{Max: new(float64)}
	}
	rate, basis, known := prices.rate(runs)
	if !known {
		return nil
	}
	cost.Rate, cost.Basis, j.rate = rate, basis, rate*prices.HoursPerMonth
	week := j.week()
	a, typical := &Amounts{Min: cents(week.floor * j.rate)}, week.floor
	if !week.unbounded {
		a.Max = new(cents(week.most * j.rate))
		typical += prices.share(j.pool.Name) * (week.most - week.floor)
	}
	if seen, ok := c.recordedRunners(j); ok && !j.pool.rests() {
		typical = seen
	}
	a.Typical = cents(typical * j.rate)
	return a
}

// profile evaluates policies over a week. It starts with the answer a, for the time of the review, and evaluates again
// whenever schedules or policies announce a change. Rules that read the clock need not announce changes, so they are also
// evaluated at each full hour.
func (s *side) profile(ctx context.Context, p *pool, a scaled) (week profile) {
	if p.rests() {
		return week
	}
	end, isHourly := s.in.At.Add(lookout), p.bound.Needs().Clock()
	for at, changes := s.in.At, 0; at.Before(end); {
		next, soonest := nextChange(at, end, a), at.Add(closestThen)
		if isHourly {
			soonest = at.Truncate(time.Hour).Add(time.Hour)
			next = earliest(next, soonest)
		}
		if changes >= manyChanges && next.Before(soonest) {
			next, s.coarse[p.name()] = soonest, true
		}
		if !isHourly || next.Before(soonest) {
			changes++
		}
		next = earliest(next, end)
		week.add(at, next, a.inForce())
		at = next
		if at.Before(end) {
			a = s.scaling(ctx, p, at)
		}
	}
	return week
}

// nextChange returns when the limits in a, which were evaluated for the time at, may change: at most end.
func nextChange(at, end time.Time, a scaled) time.Time {
	until := a.answer.Until
	if soonest := at.Add(closest); until.After(at) && until.Before(soonest) {
		until = soonest
	}
	return earliest(slices.DeleteFunc([]time.Time{a.Next, until, end}, func(t time.Time) bool { return !t.After(at) })...)
}

func earliest(times ...time.Time) time.Time { return slices.MinFunc(times, time.Time.Compare) }

// rests reports whether a pool has no runners regardless of its limits: it only observes, or its stop policy is Drain.
func (p *pool) rests() bool { return p.Spec.GetStopPolicy() == v1alpha1.StopDrain || p.Spec.Observes() }

// inForce returns the limits that apply. While a policy fails, they are the limits that the controller would keep in force.
func (a *scaled) inForce() policy.Scale {
	if len(a.answer.Failures) == 0 {
		return a.answer.Scale
	}
	return a.answer.Held(*cmp.Or(a.last, &a.Scale), a.Scale)
}

// add adds a period with constant limits.
func (w *profile) add(from, to time.Time, scale policy.Scale) {
	weight := float64(to.Sub(from)) / float64(lookout)
	w.floor += weight * float64(floor(scale))
	w.most += weight * float64(scale.Max)
	w.unbounded = w.unbounded || scale.Max == v1alpha1.UnboundedMax
	if n := len(w.steps); n == 0 || w.steps[n-1].Scale != scale {
		w.steps = append(w.steps, Span{From: from, Scale: scale})
	}
}

// add adds the cost of a pool to the total, and records the pools whose cost the total cannot include.
func (t *Cost) add(p *pair) {
	cost := cmp.Or(p.shown.Cost, &Cost{})
	if p.base != nil && t.Before != nil {
		t.Before.add(p.name(), cost.Before, &t.UnknownBefore, &t.UnboundedBefore)
	}
	if p.head != nil {
		t.After.add(p.name(), cost.After, &t.Unknown, &t.Unbounded)
	}
}

// add adds the amounts of a pool. o is nil if the rate of the pool is unknown.
func (a *Amounts) add(name string, o *Amounts, unknown, unbounded *[]string) {
	switch {
	case o == nil:
		*unknown = append(*unknown, name)
		return
	case o.Max == nil:
		*unbounded = append(*unbounded, name)
		o = &Amounts{o.Min, o.Typical, new(float64)}
	}
	*a = *a.Plus(o)
}

// Plus returns the sum of two amounts; nil if either is nil. The sum has no Max if either has none.
func (a *Amounts) Plus(o *Amounts) *Amounts {
	if a == nil || o == nil {
		return nil
	}
	sum := &Amounts{Min: cents(a.Min + o.Min), Typical: cents(a.Typical + o.Typical)}
	if a.Max != nil && o.Max != nil {
		sum.Max = new(cents(*a.Max + *o.Max))
	}
	return sum
}

// assumptions returns sentences that state what the amounts assume.
func (c *comparison) assumptions(p *Prices, isShared bool) []string {
	shares := []float64{100 * p.share("")}
	for _, s := range p.Typical.Pools {
		shares = append(shares, 100*s.Share)
	}
	return effects.Sentences("assumptions", struct {
		HoursPerMonth, Least, Most float64
		From, Note                 string
		IsShared, IsRecorded       bool
		ReadsClock                 bool
	}{p.HoursPerMonth, slices.Min(shares), slices.Max(shares), c.in.At.UTC().Format(time.DateOnly), strings.TrimSuffix(p.Note, "."), isShared, len(c.in.Records) > 0,
		slices.ContainsFunc(c.head.order, func(p *pool) bool { return p.bound.Needs().Clock() })})
}

// maxQuestions is the approximate maximum number of evaluations with which excess determines how many runners the pools of
// a side can have together.
const maxQuestions = 2000

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
// the ceilings greedily, the most expensive pool first.
func (s *side) excess(ctx context.Context) float64 {
	sharers := s.sharers()
	alone, together := 0.0, 0.0
	for _, p := range sharers {
		alone += p.week().most * p.rate
	}
	moments := append(momentsOf(sharers), s.in.At.Add(lookout))
	for i, end := range moments[1:] {
		together += float64(end.Sub(moments[i])) / float64(lookout) * s.fill(ctx, sharers, moments[i])
	}
	return max(0, alone-together)
}

// momentsOf returns the times of the week at which the limits of any of the pools change. If maxQuestions does not allow an
// evaluation of all pools at all of these times, it leaves out times at regular steps.
func momentsOf(sharers []*judgement) (some []time.Time) {
	var times []time.Time
	for _, p := range sharers {
		for _, step := range p.week().steps {
			times = append(times, step.From)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	times = slices.Compact(times)
	every := len(times)*len(sharers)/maxQuestions + 1
	for together := range slices.Chunk(times, every) {
		some = append(some, together[0])
	}
	return some
}

// fill returns the monthly cost if each pool in turn gets the maximum number of runners that the pools before it leave.
func (s *side) fill(ctx context.Context, sharers []*judgement, at time.Time) float64 {
	fleet, total := s.idleFleet(), 0.0
	for _, p := range sharers {
		asked := *p.pool
		asked.usage = fleet.Usage(asked.input, asked.bound.Needs())
		a := s.scaling(ctx, &asked, at)
		if runners := a.inForce().Max; runners != v1alpha1.UnboundedMax {
			fleet.Put(asked.input, policy.Needs{}, runners, runners)
			total += float64(runners) * p.rate
		}
	}
	return total
}
