// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/wording"
)

// maxNamed is the maximum number of pools that a consequence names.
const maxNamed = 10

// Consequence is one consequence of a change.
type Consequence struct {
	// Class is a Class of a pool's change, or another word for the kind of consequence, such as Broken, Deleted, NewlyDenied or
	// Cost.
	Class string `json:"class"`
	// Count is the number of affected pools or other objects. Of is the number of all pools; 0 for other objects.
	Count int `json:"count"`
	Of    int `json:"of,omitempty"`
	// Pools lists the first 10 affected pools as NAMESPACE/NAME.
	Pools []string `json:"pools,omitempty"`
	// Text describes the consequence. It has no period, because reports join the texts of all consequences to one line.
	Text string `json:"text"`
}

// poolConsequences are the consequences for pools, the most severe first, with texts for one pool and for several. In the
// list of all consequences, the first group comes before pools that are freed of policies, the second before changed limits,
// and the third after the cost.
var poolConsequences = [3][]poolConsequence{{
	{string(Deleted), func(p *Pool) bool { return p.Change == Deleted && p.LosesJobs }, "deleted: its waiting jobs are lost", "deleted: their waiting jobs are lost"},
	{string(Renamed), func(p *Pool) bool { return p.Change == Renamed && p.LosesJobs }, "renamed: its waiting jobs are lost", "renamed: their waiting jobs are lost"},
	{string(Replaced), func(p *Pool) bool { return p.isReplaced() && p.LosesJobs }, "replaced: its waiting jobs are lost", "replaced: their waiting jobs are lost"},
	{"PolicyFailed", func(p *Pool) bool { return p.has(Failure, New, Unknown) }, "undecided: a policy fails", "undecided: policies fail"},
	{"NewlyDenied", func(p *Pool) bool { return p.has(Deny, New) }, "newly denied", "newly denied"},
	{"Denied", func(p *Pool) bool { return p.has(Deny, Unknown) }, "denied", "denied"},
	{string(Deleted), func(p *Pool) bool { return p.Change == Deleted && !p.LosesJobs }, "deleted", "deleted"},
	{string(Renamed), func(p *Pool) bool { return p.Change == Renamed && !p.LosesJobs }, "renamed", "renamed"},
	{string(Replaced), func(p *Pool) bool { return p.isReplaced() && !p.LosesJobs }, "replaced", "replaced"},
}, {
	{"Suspended", (*Pool).suspends, "suspended: its jobs wait", "suspended: their jobs wait"},
	{string(ReroutesJobs), func(p *Pool) bool { return slices.Contains(p.Classes, ReroutesJobs) && !p.suspends() }, "reroutes jobs", "reroute jobs"},
	{string(ReplacesRunners), (*Pool).rolls, "replaces its runners", "replace their runners"},
	{"Denied", func(p *Pool) bool { return !p.has(Deny, New) && p.has(Deny, Still) }, "denied as before", "denied as before"},
	{"PolicyFailed", func(p *Pool) bool { return !p.has(Failure, New) && p.has(Failure, Still) }, "undecided as before", "undecided as before"},
	{"Warned", func(p *Pool) bool { return p.has(Warn, New) }, "newly warned", "newly warned"},
}, {
	{string(ReplacesRunners), func(p *Pool) bool { return p.Rollout != nil && p.Rollout.Hold }, "with a template on hold", "with a template on hold"},
	{string(Moved), func(p *Pool) bool { return p.Change == Moved }, "changed by policies alone", "changed by policies alone"},
	{string(Settings), func(p *Pool) bool { return p.Class() == Settings }, "with changed settings", "with changed settings"},
}}

type poolConsequence struct {
	class     string
	of        func(*Pool) bool
	one, many string
}

// Worst returns the consequences of a review, the most severe first. It returns none if nothing changes and policies deny
// nothing.
func Worst(r *Result) []Consequence {
	limits, added := r.limits(), r.pools(poolConsequence{string(Added), func(p *Pool) bool { return p.Change == Added }, "added", "added"})
	numbers := slices.Concat(added, limits)
	if r.Summary.MaxAfter < r.Summary.MaxBefore {
		numbers = slices.Concat(limits, added)
	}
	all := slices.Concat(
		r.problems(), r.pools(poolConsequences[0]...), r.freed, r.pools(poolConsequences[1]...), r.otherObjects(Deleted), numbers, r.rise(),
		r.pools(poolConsequences[2]...), others("Overlaps", "%s newly matching the same jobs", "pool pair", len(r.Overlaps)),
		r.otherObjects(Changed), r.otherObjects(Added), others("Prices", "%s changed", "price", cmp.Or(r.Prices, &PriceChange{}).count()),
	)
	first := slices.IndexFunc(all, func(c Consequence) bool { return c.Of > 0 })
	for i, c := range all {
		switch { // the first consequence for pools also states the total number of pools
		case i == first:
			all[i].Text = fmt.Sprintf("%d of %s %s", c.Count, wording.Count(c.Of, "pool"), c.Text)
		case c.Of > 0:
			all[i].Text = fmt.Sprintf("%d %s", c.Count, c.Text)
		}
	}
	return all
}

// problems returns the consequence that the head is broken, or that the base cannot be compared.
func (r *Result) problems() []Consequence {
	n := len(r.Base.Diagnostics)
	switch {
	case r.Verdict == Broken:
		return []Consequence{{Class: string(Broken), Count: len(r.Head.Diagnostics), Text: effects.Phrase("broken", r)}}
	case n > 0:
		return []Consequence{{Class: string(Uncompared), Count: n, Text: effects.Phrase("uncompared", r.Base.Diagnostics)}}
	}
	return nil
}

// pools returns the given consequences that apply to any pool. Worst adds the numbers of pools to the texts.
func (r *Result) pools(consequences ...poolConsequence) (all []Consequence) {
	for _, what := range consequences {
		c := r.count(what.class, what.of)
		c.Of = map[bool]int{true: r.Base.Pools, false: r.Head.Pools}[what.class == string(Deleted)]
		c.Text = map[bool]string{true: what.one, false: what.many}[c.Count == 1]
		if c.Count > 0 {
			all = append(all, c)
		}
	}
	return all
}

// count returns a consequence with the number and names of the pools that satisfy a condition.
func (r *Result) count(class string, of func(*Pool) bool) Consequence {
	var names []string
	for i := range r.Pools {
		if p := &r.Pools[i]; of(p) {
			names = append(names, p.qualified())
		}
	}
	return Consequence{Class: class, Count: len(names), Pools: names[:min(len(names), maxNamed)]}
}

func (p *Pool) qualified() string { return wording.Qualified(p.Namespace, p.Name) }

// otherObjects returns consequences with the numbers of connections and of policies that have the given change.
func (r *Result) otherObjects(change Change) []Consequence {
	connections := slices.DeleteFunc(slices.Clone(r.Connections), func(c Connection) bool { return c.Change != change })
	policies := slices.DeleteFunc(slices.Clone(r.Policies), func(p PolicyChange) bool { return p.Change != change })
	format := "%s " + strings.ToLower(string(change))
	return slices.Concat(others("Connections", format, "connection", len(connections)), others("Policies", format, "policy", len(policies)))
}

func others(class, format, noun string, n int) []Consequence {
	if n == 0 {
		return nil
	}
	return []Consequence{{Class: class, Count: n, Text: fmt.Sprintf(format, wording.Count(n, noun))}}
}

// limits returns the consequence that the sum of all max in force, or a limit of a pool, changes.
func (r *Result) limits() []Consequence {
	c := r.count(string(OtherLimits), func(p *Pool) bool {
		return p.mostBefore != p.mostAfter || p.Before != nil && p.After != nil && !p.Before.same(p.After)
	})
	if !r.Comparable() || c.Count == 0 {
		return nil
	}
	c.Text = effects.Phrase("limits", struct {
		Summary
		Count int
	}{r.Summary, c.Count})
	return []Consequence{c}
}

// rise returns the consequence that the typical monthly cost changes.
func (r *Result) rise() []Consequence {
	if r.Cost == nil || r.Cost.Before == nil || r.Cost.After == nil {
		return nil
	}
	more, uncounted := r.Cost.typicalRise(), r.Uncounted()
	if more == 0 && uncounted+len(r.Cost.Frequent) == 0 {
		return nil
	}
	c := r.count("Cost", func(p *Pool) bool { return p.Cost != nil && p.Cost.typicalRise() != 0 })
	c.Text = effects.Phrase("rise", struct {
		*Cost
		More, Percent float64
		Uncounted     int
	}{r.Cost, more, 100 * more / r.Cost.Before.Typical, uncounted})
	return []Consequence{c}
}

// Uncounted returns the number of pools that may cost more than the amounts show. Either only the head has no price or no
// max for them, or their price is unknown on both sides and their max rises.
func (r *Result) Uncounted() int {
	t := cmp.Or(r.Cost, &Cost{})
	more := r.count("", func(p *Pool) bool {
		return p.mostBefore < p.mostAfter && slices.Contains(t.Unknown, p.qualified()) && slices.Contains(t.UnknownBefore, p.qualified())
	})
	return more.Count + len(without(t.Unknown, t.UnknownBefore)) + len(without(t.Unbounded, t.UnboundedBefore))
}

// typicalRise returns the increase of the typical monthly cost. The cost of a side without amounts counts as zero.
func (c *Cost) typicalRise() float64 {
	return cents(cmp.Or(c.After, &Amounts{}).Typical - cmp.Or(c.Before, &Amounts{}).Typical)
}

// suspends reports whether the pool stops accepting jobs.
func (p *Pool) suspends() bool {
	return slices.ContainsFunc(p.Fields, func(f FieldChange) bool {
		return f.Path == "spec.stopPolicy" && !stops(f.Before) && stops(f.After)
	})
}

// stops reports whether a value of spec.stopPolicy keeps a pool from accepting jobs.
func stops(value json.RawMessage) bool { return len(value) > 0 && string(value) != `"None"` }

func (p *Pool) isReplaced() bool { return p.Change == Changed && p.Class() == Replaced }

// Fails reports whether a policy fails for the pool at the head.
func (p *Pool) Fails() bool { return p.has(Failure, New, Still, Unknown) }

// has reports whether the pool has a finding with the level and one of the states.
func (p *Pool) has(level Level, states ...State) bool { return p.count(level, states...) > 0 }

// count returns the number of findings with the level and one of the states.
func (p *Pool) count(level Level, states ...State) (n int) {
	for _, f := range p.Findings {
		if f.Level == level && slices.Contains(states, f.State) {
			n++
		}
	}
	return n
}

// most returns the maximum number of runners of the pool with the given limits; 0 without a pool.
func (p *pool) most(l *Limits) int64 {
	if p == nil {
		return 0
	}
	return int64(l.inForce)
}

// addMax adds a max to a sum. The sum is unbounded if either is.
func addMax(sum *int64, most int64) { *sum = min(*sum+most, v1alpha1.UnboundedMax) }

func maxText(n int64) string {
	if n >= v1alpha1.UnboundedMax {
		return wording.Max(v1alpha1.UnboundedMax)
	}
	return humanize.Comma(n)
}

// signed returns the text of an amount with the sign of the number v.
func signed(v float64, words string) string {
	if v < 0 {
		return "−" + strings.TrimPrefix(words, "-")
	}
	return "+" + words
}

// Money formats an amount of money: with cents below 100, and otherwise as a whole number whose digits are in groups of
// three.
func Money(v float64) string {
	if math.Abs(v) < 100 {
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return humanize.Comma(int64(math.RoundToEven(v)))
}
