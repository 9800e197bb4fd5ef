// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// outcome is the expected result of a review.
type outcome struct {
	*pair
	pools    []*judged
	problems []string // FILE:LINE of each problem
	cost     [2]amounts
	max      [2]int // total max in force of all pools
	endless  [2]bool
	unbound  int // number of pools that lose their max
}

// judgeAll computes the expected result for all pools.
func (x *pair) judgeAll() *outcome {
	o := &outcome{pair: x, cost: [2]amounts{{Max: new(float64)}, {Max: new(float64)}}}
	if id := x.head.broken; id >= 0 {
		o.problems = []string{x.head.places[fmt.Sprintf("%d/spec.scale.max", id)]}
		return o
	}
	base, head := map[int]*pool{}, map[int]*pool{}
	for _, p := range x.base.pools {
		base[p.id] = p
	}
	for _, p := range x.head.pools {
		head[p.id] = p
	}
	all := maps.Clone(base)
	maps.Copy(all, head)
	for _, id := range slices.Sorted(maps.Keys(all)) {
		j := x.judge(base[id], head[id])
		o.pools, o.problems = append(o.pools, j), append(o.problems, x.refuses(j.head)...)
		o.add(j)
	}
	o.share()
	return o
}

// add adds a pool's max and cost to the totals.
func (o *outcome) add(j *judged) {
	for side, most := range j.most {
		o.max[side] = min(unbounded, o.max[side]+most)
		all, cost := &o.cost[side], j.cost[side]
		if cost == nil {
			continue
		}
		all.Min += cost.Min
		all.Typical += cost.Typical
		if cost.Max != nil {
			*all.Max += *cost.Max
			continue
		}
		o.endless[side] = true
		if side == 1 && (j.cost[0] == nil || j.cost[0].Max != nil) {
			o.unbound++
		}
	}
}

// share subtracts the cost that pools under a shared ceiling can never incur together.
func (o *outcome) share() {
	if o.head.prices == nil {
		return
	}
	var members [2][]*member
	for _, j := range o.pools {
		if j.base != nil {
			members[0] = append(members[0], &member{j.base, j.rates[0], func(t time.Time) numbers { n, _ := o.base.limited(j.base, t); return n }})
		}
		if j.head != nil {
			members[1] = append(members[1], &member{j.head, j.rates[1], func(t time.Time) numbers { return o.decided(j, t) }})
		}
	}
	for side, f := range []*fleet{o.base, o.head} {
		all, less := &o.cost[side], f.together(members[side])
		*all.Max -= less
		if less > 0 && !o.endless[side] {
			all.Typical = min(all.Typical, *all.Max)
		}
		*all = amounts{cents(all.Min), cents(all.Typical), new(cents(*all.Max))}
	}
}

// refuses returns the places of the fields for which a PoolSource or the API server would reject the pool.
func (x *pair) refuses(p *pool) []string {
	if p == nil {
		return nil
	}
	ns, _, isFar := strings.Cut(p.connection, "/")
	switch {
	case x.head.own != "" && p.ns != x.head.own:
		return []string{x.head.place(p, "")}
	case isFar && ns != p.ns && !slices.Contains(x.head.consent, p.ns):
		return []string{x.head.place(p, "spec.connectionRef.name")}
	}
	return nil
}

// bears returns the labels that the pool's runners have on GitHub.
func (p *pool) bears() []string {
	all := folded(p.labels)
	if p.rest {
		all = append(all, "self-hosted", "x64")
	}
	return all
}

// overlaps reports whether two pools compete for the same jobs, because all labels of one are labels of the other, or because both have
// the name of one's scale set as a label.
func overlaps(a, b *pool) bool {
	within := func(a, b *pool) bool {
		return !slices.ContainsFunc(a.bears(), func(l string) bool { return !slices.Contains(b.bears(), l) })
	}
	shared := !a.rest && !b.rest && slices.ContainsFunc([]string{a.name, b.name}, func(name string) bool {
		return slices.Contains(a.bears(), name) && slices.Contains(b.bears(), name)
	})
	return path.Base(a.connection) == path.Base(b.connection) && a.group == b.group && (within(a, b) || within(b, a) || shared)
}

// newOverlaps counts the pairs of pools that compete for the same jobs only since this change.
func (o *outcome) newOverlaps() (n int) {
	for i, a := range o.pools {
		for _, b := range o.pools[:i] {
			redeclared := slices.ContainsFunc([]*judged{a, b}, func(j *judged) bool { return j.change != "Same" && j.change != "Moved" })
			if a.head == nil || b.head == nil || !redeclared || !overlaps(a.head, b.head) {
				continue
			}
			if a.base == nil || b.base == nil || !overlaps(a.base, b.base) {
				n++
			}
		}
	}
	return n
}

// firstLine assembles the parts of the first line.
type firstLine struct {
	*outcome
	all     []string
	counted bool
}

func count(n int, noun string) string {
	switch {
	case n == 1:
		return "1 " + noun
	case noun == "policy":
		return fmt.Sprintf("%d policies", n)
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// pools adds a part with the number of matching pools, if there are any.
func (w *firstLine) pools(is func(*judged) bool, one, many string) {
	n, of := 0, len(w.head.pools)
	for _, j := range w.outcome.pools {
		if is(j) {
			n++
		}
	}
	if n == 0 {
		return
	}
	if strings.HasPrefix(one, "deleted") {
		of = len(w.base.pools)
	}
	text, number := many, strconv.Itoa(n)
	if n == 1 {
		text = one
	}
	if !w.counted {
		number = fmt.Sprintf("%d of %s", n, count(of, "pool"))
	}
	w.counted = true
	w.all = append(w.all, number+" "+text)
}

func (w *firstLine) others(n int, format, noun string) {
	if n > 0 {
		w.all = append(w.all, fmt.Sprintf(format, count(n, noun)))
	}
}

// line returns the expected first line. Lost jobs and denials come first, then effects on runners and jobs, then
// numbers, then harmless changes.
func (o *outcome) line() string {
	w := &firstLine{outcome: o}
	if len(o.problems) > 0 {
		w.all = append(w.all, fmt.Sprintf("Broken: the head can't be applied (%s)", count(len(o.problems), "problem")))
	}
	for _, loses := range []bool{true, false} {
		for _, change := range []string{"Deleted", "Renamed", "Changed"} {
			one, many := strings.ToLower(change), ""
			if change == "Changed" {
				one = "replaced"
			}
			if many = one; loses {
				one, many = one+": its waiting jobs are lost", many+": their waiting jobs are lost"
			}
			w.pools(func(j *judged) bool { return j.change == change && j.hasClass("Replaced") && j.losesJobs() == loses }, one, many)
		}
		if loses {
			w.pools(func(j *judged) bool { return j.has("Failure", "New") }, "undecided: a policy fails", "undecided: policies fail")
			w.pools(func(j *judged) bool { return j.has("Deny", "New") }, "newly denied", "newly denied")
		}
	}
	for _, of := range []string{"RunnerPolicy/" + cmp.Or(w.head.own, "ml") + "/quiet", "limits that depend on labels"} {
		w.pools(func(j *judged) bool { return w.isFreed(j, of) }, "freed of "+of, "freed of "+of)
	}
	w.pools(func(j *judged) bool { return j.becomesQuiet }, "suspended: its jobs wait", "suspended: their jobs wait")
	w.pools(func(j *judged) bool { return j.hasClass("ReroutesJobs") && !j.becomesQuiet }, "reroutes jobs", "reroute jobs")
	w.pools((*judged).rolls, "replaces its runners", "replace their runners")
	w.pools(func(j *judged) bool { return j.has("Deny", "Still") && !j.has("Deny", "New") }, "denied as before", "denied as before")
	w.pools(func(j *judged) bool { return j.has("Warn", "New") }, "newly warned", "newly warned")
	w.numbers()
	if len(w.all) > 6 {
		w.all = append(w.all[:6], fmt.Sprintf("%d more", len(w.all)-6))
	}
	if len(w.all) == 0 {
		return "Nothing changes"
	}
	return strings.Join(w.all, " · ")
}

// isFreed reports whether the policy no longer binds the pool, or binds it less tightly only because its labels
// changed.
func (x *pair) isFreed(j *judged, of string) bool {
	if j.base == nil || j.head == nil {
		return false
	}
	if strings.HasPrefix(of, "RunnerPolicy/") {
		isEnforced := func(f *fleet) bool { return f.quietly(j.base) && f.rules.quiet.mode == "Enforce" }
		return isEnforced(x.base) && !isEnforced(x.head)
	}
	labelled := *j.head
	labelled.team, labelled.tier = j.base.team, j.base.tier
	than, decided := x.head.limited(&labelled, at)
	is, known := x.head.limited(j.head, at)
	return decided && known && (is.Max > than.Max || is.Min < than.Min)
}

// rolls reports whether the pool's runners are replaced because its template changed.
func (j *judged) rolls() bool {
	return j.change == "Changed" && j.hasClass("ReplacesRunners") && !j.isRefused()
}

// numbers adds the parts about limits, and those that follow them.
func (w *firstLine) numbers() {
	if w.head.broken >= 0 {
		return
	}
	gone, added, changed := w.policies()
	w.others(gone, "%s deleted", "policy")
	limits := func(is bool) {
		n := 0
		for _, j := range w.outcome.pools {
			if j.otherLimits {
				n++
			}
		}
		switch {
		case !is || n == 0:
		case w.max[0] != w.max[1]:
			w.all = append(w.all, fmt.Sprintf("max in force %s → %s", most(w.max[0]), most(w.max[1])))
		default:
			w.all = append(w.all, fmt.Sprintf("%d with changed limits", n))
		}
	}
	limits(w.max[1] < w.max[0])
	w.pools(func(j *judged) bool { return j.change == "Added" }, "added", "added")
	limits(w.max[1] >= w.max[0])
	w.money()
	w.pools(func(j *judged) bool { return j.change == "Moved" }, "changed by policies alone", "changed by policies alone")
	w.pools(func(j *judged) bool { return len(j.classes) > 0 && j.classes[0] == "Settings" }, "with changed settings", "with changed settings")
	w.others(w.newOverlaps(), "%s newly matching the same jobs", "pool pair")
	connections := 0
	if w.base.secret != w.head.secret {
		connections++
	}
	if !slices.Equal(w.base.consent, w.head.consent) {
		connections++
	}
	w.others(connections, "%s changed", "connection")
	w.others(changed, "%s changed", "policy")
	w.others(added, "%s added", "policy")
	w.others(w.prices(), "%s changed", "price")
}

func most(n int) string {
	if n == unbounded {
		return "unbounded"
	}
	return humanize.Comma(int64(n))
}

func (w *firstLine) policies() (gone, added, changed int) {
	was, is := w.base.rules, w.head.rules
	for _, has := range [][2]bool{{was.quiet != nil, is.quiet != nil}, {was.extra, is.extra}} {
		switch {
		case has[0] && !has[1]:
			gone++
		case has[1] && !has[0]:
			added++
		}
	}
	if was.quiet != nil && is.quiet != nil && *was.quiet != *is.quiet {
		changed++
	}
	was.quiet, is.quiet, was.extra, is.extra = nil, nil, false, false
	if fmt.Sprint(was) != fmt.Sprint(is) {
		changed++
	}
	return gone, added, changed
}

// money adds the part about cost.
func (w *firstLine) money() {
	if w.head.prices == nil {
		return
	}
	was, more := w.cost[0].Typical, cents(w.cost[1].Typical-w.cost[0].Typical)
	if more == 0 && w.unbound == 0 {
		return
	}
	sign, size := "+", more
	if more < 0 {
		sign, size = "−", -more
	}
	amount := fmt.Sprintf("%.2f", size)
	if size >= 100 {
		amount = humanize.Comma(int64(math.RoundToEven(size)))
	}
	text := fmt.Sprintf("%s%s EUR a month (%s%.0f %%)", sign, amount, sign, 100*size/was)
	if w.unbound > 0 {
		text += fmt.Sprintf(", not counting %s without a price or without a max", count(w.unbound, "pool"))
	}
	w.all = append(w.all, text)
}

// prices counts the prices that differ.
func (w *firstLine) prices() (n int) {
	const fields = 13 // in a price file
	was, is := w.base.prices, w.head.prices
	switch {
	case was == nil && is == nil:
		return 0
	case was == nil || is == nil:
		return fields
	}
	for _, differs := range []bool{was.cpu != is.cpu, was.gib != is.gib, was.label != is.label, was.node != is.node, was.share != is.share} {
		if differs {
			n++
		}
	}
	return n
}
