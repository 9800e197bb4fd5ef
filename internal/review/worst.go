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

// maxNamed bounds how many pools a consequence names.
const maxNamed = 10

// Consequence is what a change comes to.
type Consequence struct {
	// Class as Broken, Deleted, NewlyDenied, one of Classes, or Cost.
	Class string `json:"class"`
	// Count pools, or what the class is about, of Of.
	Count int `json:"count"`
	Of    int `json:"of,omitempty"`
	// Pools NAMESPACE/NAME, the first 10.
	Pools []string `json:"pools,omitempty"`
	// Text says it in plain words. The texts of all, joined, are one line.
	Text string `json:"text"`
}

// poolConsequences are the consequences for pools, the worst first, with words for one and for several: those before pools that are freed of policies,
// those before numbers, and the rest.
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
	{"Warned", func(p *Pool) bool { return p.has(Warn, New) }, "newly warned of", "newly warned of"},
}, {
	{string(ReplacesRunners), func(p *Pool) bool { return p.Rollout != nil && p.Rollout.Hold }, "with a template on hold", "with a template on hold"},
	{string(Moved), func(p *Pool) bool { return p.Change == Moved }, "changed by policies alone", "changed by policies alone"},
	{string(Settings), func(p *Pool) bool { return p.Class() == Settings }, "with other settings", "with other settings"},
}}

type poolConsequence struct {
	class     string
	of        func(*Pool) bool
	one, many string
}

// Worst tells what a review comes to, the worst first; nothing if nothing changes and nothing is wrong.
func Worst(r *Result) []Consequence {
	w := worst{result: r}
	w.problems()
	w.pools(poolConsequences[0]...)
	for _, c := range r.freed {
		w.addPools(c, "freed of "+c.Text)
	}
	w.pools(poolConsequences[1]...)
	w.besides(Deleted)
	fell := r.Summary.MaxAfter < r.Summary.MaxBefore
	if fell {
		w.limits()
	}
	w.pools(poolConsequence{string(Added), func(p *Pool) bool { return p.Change == Added }, "added", "added"})
	if !fell {
		w.limits()
	}
	w.cost()
	w.pools(poolConsequences[2]...)
	w.others("Overlaps", "%s newly for the same jobs", "pool pair", len(r.Overlaps))
	w.besides(Changed)
	w.besides(Added)
	w.others("Prices", "%s changed", "price", len(cmp.Or(r.Prices, &PriceChange{}).Fields))
	return w.all
}

type worst struct {
	result *Result
	all    []Consequence
}

func (w *worst) add(c Consequence) { w.all = append(w.all, c) }

// besides counts the connections and policies of which something becomes.
func (w *worst) besides(change Change) {
	connections := slices.DeleteFunc(slices.Clone(w.result.Connections), func(c Connection) bool { return c.Change != change })
	policies := slices.DeleteFunc(slices.Clone(w.result.Policies), func(p PolicyChange) bool { return p.Change != change })
	format := "%s " + strings.ToLower(string(change))
	w.others("Connections", format, "connection", len(connections))
	w.others("Policies", format, "policy", len(policies))
}

// problems are what keeps a side from being read.
func (w *worst) problems() {
	r := w.result
	if r.Verdict == Broken {
		w.add(Consequence{Class: string(Broken), Count: len(r.Head.Diagnostics), Text: effects.Phrase("broken", r)})
	} else if n := len(r.Base.Diagnostics); n > 0 {
		w.add(Consequence{Class: string(Uncompared), Count: n, Text: effects.Phrase("uncompared", r.Base.Diagnostics)})
	}
}

// pools adds what is true of some.
func (w *worst) pools(consequences ...poolConsequence) {
	for _, what := range consequences {
		switch c := w.count(what.class, what.of); c.Count {
		case 0:
		case 1:
			w.addPools(c, what.one)
		default:
			w.addPools(c, what.many)
		}
	}
}

// count names and counts pools.
func (w *worst) count(class string, of func(*Pool) bool) Consequence {
	var names []string
	for i := range w.result.Pools {
		if p := &w.result.Pools[i]; of(p) {
			names = append(names, wording.Qualified(p.Namespace, p.Name))
		}
	}
	return Consequence{Class: class, Count: len(names), Pools: names[:min(len(names), maxNamed)]}
}

// addPools adds what becomes of some pools. The first to name pools says of how many.
func (w *worst) addPools(c Consequence, text string) {
	c.Of = w.result.Head.Pools
	if c.Class == string(Deleted) {
		c.Of = w.result.Base.Pools
	}
	number := strconv.Itoa(c.Count)
	if !slices.ContainsFunc(w.all, func(c Consequence) bool { return c.Of > 0 }) {
		number = fmt.Sprintf("%d of %s", c.Count, wording.Count(c.Of, "pool"))
	}
	c.Text = number + " " + text
	w.add(c)
}

// limits tell of numbers in force: of max all together.
func (w *worst) limits() {
	c := w.count(string(OtherLimits), func(p *Pool) bool {
		return p.mostBefore != p.mostAfter || p.Before != nil && p.After != nil && !p.Before.same(p.After)
	})
	if w.result.Comparable() && c.Count > 0 {
		c.Text = effects.Phrase("limits", struct {
			Summary
			Count int
		}{w.result.Summary, c.Count})
		w.add(c)
	}
}

// cost tells how much more a month is.
func (w *worst) cost() {
	total := w.result.Cost
	if total == nil || total.Before == nil || total.After == nil {
		return
	}
	more, uncounted := cents(total.After.Typical-total.Before.Typical), w.result.Uncounted()
	if more == 0 && uncounted == 0 {
		return
	}
	c := w.count("Cost", func(p *Pool) bool { return p.Cost != nil && p.Cost.typicalRise() != 0 })
	c.Text = effects.Phrase("rise", struct {
		*Cost
		More, Percent float64
		Uncounted     int
	}{total, more, 100 * more / total.Before.Typical, uncounted})
	w.add(c)
}

// Uncounted is how many pools may cost more than the amounts tell: without a price or a max that they had before, or with a greater
// max and no price.
func (r *Result) Uncounted() int {
	t := cmp.Or(r.Cost, &Cost{})
	n := len(without(t.Unknown, t.UnknownBefore)) + len(without(t.Unbounded, t.UnboundedBefore))
	more := (&worst{result: r}).count("", func(p *Pool) bool {
		name := []string{wording.Qualified(p.Namespace, p.Name)}
		return p.mostBefore < p.mostAfter && len(without(name, t.Unknown))+len(without(name, t.UnknownBefore)) == 0
	})
	return n + more.Count
}

// typicalRise is how much more a month typically is; nothing on a side without amounts.
func (c *Cost) typicalRise() float64 {
	return cents(cmp.Or(c.After, &Amounts{}).Typical - cmp.Or(c.Before, &Amounts{}).Typical)
}

func (w *worst) others(class, format, noun string, n int) {
	if n > 0 {
		w.add(Consequence{Class: class, Count: n, Text: fmt.Sprintf(format, wording.Count(n, noun))})
	}
}

// suspends says whether the pool accepts no more jobs from now on.
func (p *Pool) suspends() bool {
	return slices.ContainsFunc(p.Fields, func(f FieldChange) bool {
		return f.Path == "spec.stopPolicy" && !stops(f.Before) && stops(f.After)
	})
}

// stops reports whether a value of spec.stopPolicy keeps a pool from accepting jobs.
func stops(value json.RawMessage) bool { return len(value) > 0 && string(value) != `"None"` }

func (p *Pool) isReplaced() bool { return p.Change == Changed && p.Class() == Replaced }

// Fails says whether a policy fails for the pool at the head.
func (p *Pool) Fails() bool { return p.has(Failure, New, Still, Unknown) }

// has says whether policies say something at a level, in one of some states.
func (p *Pool) has(level Level, states ...State) bool { return p.count(level, states...) > 0 }

// count returns the number of findings with a level and one of the states.
func (p *Pool) count(level Level, states ...State) (n int) {
	for _, f := range p.Findings {
		if f.Level == level && slices.Contains(states, f.State) {
			n++
		}
	}
	return n
}

// most is how many runners of the pool there may be within limits.
func (p *pool) most(l *Limits) int64 {
	if p == nil {
		return 0
	}
	return int64(l.inForce)
}

// addMax adds a max to a sum; none makes the sum none.
func addMax(sum *int64, most int64) { *sum = min(*sum+most, v1alpha1.UnboundedMax) }

func maxText(n int64) string {
	if n >= v1alpha1.UnboundedMax {
		return wording.Max(v1alpha1.UnboundedMax)
	}
	return humanize.Comma(n)
}

// signed returns an amount, given as a number and as text, with its sign.
func signed(v float64, words string) string {
	if v < 0 {
		return "−" + strings.TrimPrefix(words, "-")
	}
	return "+" + words
}

// Money writes an amount: whole numbers in groups of three, or cents below a hundred.
func Money(v float64) string {
	if math.Abs(v) < 100 {
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return humanize.Comma(int64(math.RoundToEven(v)))
}
