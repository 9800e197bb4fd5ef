// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

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

// comparePrices reports the differences between the price files.
func (c *comparison) comparePrices() {
	if c.base.Unpriced || !c.result.Comparable() {
		return
	}
	before, after := cmp.Or(c.base.Prices, &Prices{}), cmp.Or(c.head.Prices, &Prices{})
	if fields, more := specDiff(&before.object, &after.object).fields(); len(fields) > 0 {
		c.result.Prices = &PriceChange{before.object.File, after.object.File, fields, more}
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
// if the rate is unknown, or if the limits change too often.
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
	cost.Rate, cost.Basis = rate, basis
	week := j.week()
	if week.isUnknown {
		j.isFrequent = true
		return nil
	}
	j.rate = rate * prices.HoursPerMonth
	a, typical := &Amounts{Min: cents(week.floor * j.rate)}, week.floor
	if !week.unbounded {
		a.Max = new(cents(week.most * j.rate))
		typical += prices.share(j.pool.Name) * (week.most - week.floor)
	}
	if seen, ok := c.recordedRunners(j); ok && !j.pool.rests() {
		typical = max(seen, week.floor)
	}
	a.Typical = cents(typical * j.rate)
	return a
}

// add adds the cost of a pool to the total, and records the pools whose cost the total cannot include.
func (t *Cost) add(p *pair) {
	cost := cmp.Or(p.shown.Cost, &Cost{})
	if p.isFrequent() {
		t.Frequent = append(t.Frequent, p.name())
		return
	}
	if p.base != nil && t.Before != nil {
		t.Before.add(p.name(), cost.Before, &t.UnknownBefore, &t.UnboundedBefore)
	}
	if p.head != nil {
		t.After.add(p.name(), cost.After, &t.Unknown, &t.Unbounded)
	}
}

// isFrequent reports whether the cost of the pool is unknown on a side because its limits change too often.
func (p *pair) isFrequent() bool {
	empty := &judgement{}
	return cmp.Or(p.before, empty).isFrequent || cmp.Or(p.after, empty).isFrequent
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
		slices.ContainsFunc(c.head.order, func(p *pool) bool { return p.readsClock })})
}
