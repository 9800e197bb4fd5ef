// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	rfc3339 = time.RFC3339
	tick    = 30 * time.Minute // all events in the fleet happen on a half hour
	week    = 7 * 24 * time.Hour
	year    = 366 * 24 * time.Hour
)

// at is the time of all reviews, a Tuesday.
var at = time.Date(2026, 7, 7, 10, 0, 0, 0, time.UTC)

// berlin is the time zone of all schedules that name one.
var berlin = sync.OnceValue(func() *time.Location {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		panic(err)
	}
	return zone
})

// holds reports whether the window is open at a time.
func (w *window) holds(t time.Time) bool {
	if w.once {
		from, _ := time.Parse(rfc3339, w.from)
		to, _ := time.Parse(rfc3339, w.to)
		return !t.Before(from) && t.Before(to)
	}
	local := t.UTC()
	if w.zone != "" {
		local = t.In(berlin())
	}
	clock := local.Format("15:04")
	return slices.Contains(w.days, local.Weekday().String()) && w.from <= clock && clock < w.to
}

// scheduled returns the numbers before policies apply.
func (p *pool) scheduled(t time.Time) numbers {
	n, set := p.scale, map[string]bool{}
	for _, w := range p.windows {
		if set[w.field] || !w.holds(t) {
			continue
		}
		set[w.field] = true
		switch w.field {
		case "min":
			n.Min = w.number
		case "max":
			n.Max = w.number
		case "idle":
			n.Idle = w.number
		}
	}
	return n.cut()
}

func (n numbers) cut() numbers { return numbers{min(n.Min, n.Max), n.Max, min(n.Idle, n.Max)} }

// fewest returns the number of runners that exist without any job.
func (n numbers) fewest() int { return max(n.Min, n.Idle) }

// quietly reports whether the RunnerPolicy "quiet" binds the pool.
func (f *fleet) quietly(p *pool) bool {
	q := f.rules.quiet
	return q != nil && p.ns == cmp.Or(f.own, "ml") && p.tier == q.tier
}

// isBeside reports whether the Rego modules in the pools' folder bind the pool.
func (f *fleet) isBeside(p *pool) bool { return p.ns == f.own }

// limited returns the numbers after policies, for an idle pool in an idle fleet. decided is false if a policy
// fails. The other limits still count then.
func (f *fleet) limited(p *pool, t time.Time) (n numbers, decided bool) {
	n = p.scheduled(t)
	if f.isBeside(p) {
		if most, ok := f.rules.grants[p.team]; ok && !f.rules.ungranted {
			n.Max = min(n.Max, most)
		}
		if most, ok := f.rules.ceilings[p.tier]; ok {
			n.Max = min(n.Max, most)
		}
		if f.rules.nights && p.team == "web" && t.UTC().Hour() < 6 {
			n.Max = min(n.Max, 3)
		}
		n.Idle = min(n.Idle, f.rules.idle)
	}
	if f.quietly(p) && f.rules.quiet.mode == "Enforce" {
		n.Max = min(n.Max, f.rules.quiet.most)
	}
	if f.rules.extra && p.ns == cmp.Or(f.own, "ml") {
		n.Max = min(n.Max, 5)
	}
	if slices.Contains(p.labels, "A100") {
		n.Min = max(n.Min, 1)
	}
	return n.cut(), !f.fails(p)
}

// fails reports whether the scaling rules in the folder return an invalid result for the pool.
func (f *fleet) fails(p *pool) bool { return f.isBeside(p) && p.team == f.rules.fails && p.team != "" }

// unasked reports whether the pod rules in the folder return an invalid result for the pool.
func (f *fleet) unasked(p *pool) bool {
	return f.isBeside(p) && p.team == f.rules.failsPods && p.team != ""
}

// limits describes the numbers after policies and the other results of the scaling rules.
func (f *fleet) limits(p *pool) string {
	n, decided := f.limited(p, at)
	if !decided {
		return "undecided"
	}
	text := fmt.Sprint(n)
	if most, ok := f.rules.ceilings[p.tier]; ok && f.isBeside(p) && most == n.Max {
		text += " jobs wait"
	}
	if f.quietly(p) && f.rules.quiet.mode == "Audit" && f.rules.quiet.most < n.Max {
		text += " audited"
	}
	return text
}

// findings returns the policies' findings about a pod, and the names of their places, by code.
func (f *fleet) findings(p *pool) map[string]string {
	found := map[string]string{}
	if !f.isBeside(p) {
		return found
	}
	if f.fails(p) || f.unasked(p) {
		found["Failure "] = ""
	}
	if p.mem > f.rules.memory {
		found["Deny memory"] = "spec.template.spec.containers[0].resources.limits.memory"
	}
	if f.rules.private && p.group == "public" {
		found["Deny private"] = ""
	}
	if strings.HasSuffix(cmp.Or(p.image, f.image), ":latest") {
		found["Warn latest"] = "spec.template.spec.containers[0].image"
	}
	return found
}

// rate returns the hourly price of a runner.
func (f *fleet) rate(p *pool) float64 {
	switch {
	case slices.Contains(p.labels, "A100"):
		return f.prices.label
	case p.node != "":
		return f.prices.node * math.Max(float64(p.cpu)/4, float64(p.mem)/16)
	}
	return float64(p.cpu)*f.prices.cpu + float64(p.mem)*f.prices.gib
}

// amounts holds monthly costs.
type amounts struct {
	Min, Typical float64
	Max          *float64
}

// cost returns the monthly cost of a pool, from its numbers in each half hour of the week.
func (f *fleet) cost(p *pool, rate float64, numbersAt func(time.Time) numbers) *amounts {
	fewest, highest, endless := 0, 0, false
	for t := at; t.Before(at.Add(week)) && !p.suspended; t = t.Add(tick) {
		n := numbersAt(t)
		fewest, highest, endless = fewest+n.fewest(), highest+n.Max, endless || n.Max == unbounded
	}
	least, most := float64(fewest)/float64(week/tick), float64(highest)/float64(week/tick)
	share := f.prices.share
	if strings.HasPrefix(p.name, "free-") {
		share = 0.573
	}
	monthly := rate * 730
	if endless && rate > 0 {
		return &amounts{cents(least * monthly), cents(least * monthly), nil}
	}
	top := cents(most * monthly)
	return &amounts{cents(least * monthly), cents((least + share*(most-least)) * monthly), &top}
}

func cents(v float64) float64 { return math.Round(v*100) / 100 }

// together returns the monthly cost that pools of a tier with a shared ceiling can never incur together. Each half
// hour, it fills the ceiling greedily, most expensive pool first.
func (f *fleet) together(members []*member) (less float64) {
	if f.prices == nil {
		return 0
	}
	slices.SortStableFunc(members, func(a, b *member) int { return cmp.Compare(b.rate, a.rate) })
	for t := at; t.Before(at.Add(week)); t = t.Add(tick) {
		left := map[string]int{}
		for _, m := range members {
			most, shared := f.rules.ceilings[m.tier]
			if !shared || !f.isBeside(m.pool) || m.suspended || m.rate == 0 {
				continue
			}
			if _, met := left[m.tier]; !met {
				left[m.tier] = most
			}
			want := m.numbersAt(t).Max
			got := min(want, max(0, left[m.tier]))
			left[m.tier] -= got
			less += float64(want-got) * m.rate * 730 / float64(week/tick)
		}
	}
	return cents(less)
}

type member struct {
	*pool
	rate      float64
	numbersAt func(time.Time) numbers
}

// classes maps classes of changes to the fields that cause them. Changes to all other fields are settings.
var classes = []struct {
	name  string
	paths []string
}{
	{"Replaced", []string{"metadata.name", "metadata.namespace", "spec.connectionRef", "spec.registration"}},
	{"ReroutesJobs", []string{"spec.runnerLabels", "spec.runnerGroup", "spec.stopPolicy"}},
	{"ReplacesRunners", []string{"spec.template"}},
	{"Limits", []string{"spec.scale"}},
	{"Settings", []string{""}},
}

// judged is the oracle's prediction for a pool.
type judged struct {
	base, head   *pool
	change       string
	classes      []string
	facts        []string // in the form that the test compares
	states       map[string]string
	was, is      numbers // in force
	most         [2]int  // runners in force; 0 if policies deny the pod
	cost         [2]*amounts
	rates        [2]float64 // hourly; 0 without runners
	otherLimits  bool
	isListed     bool
	unasked      bool // the pod policies fail
	becomesQuiet bool // the head suspends the pool
}

// pair is a pull request.
type pair struct{ base, head *fleet }

func name(p *pool) string { return strings.TrimPrefix(p.ns+"/"+p.name, "/") }

// judge predicts the effect on one pool.
func (x *pair) judge(base, head *pool) *judged {
	j := &judged{base: base, head: head, change: "Same", states: map[string]string{}}
	x.compareFields(j)
	x.compareFindings(j)
	x.compareLimits(j)
	x.compareCost(j)
	if head != nil && j.change == "Same" && (j.otherLimits || slices.ContainsFunc(j.facts, isNews)) {
		j.change = "Moved"
	}
	j.countMost(x)
	j.isListed = j.change != "Same" || j.has("Deny", "Still") || j.has("Failure", "Still")
	j.facts = append(j.facts, fmt.Sprintf("%s %v loses jobs: %t", j.change, j.classes, j.losesJobs()),
		"declared at "+x.base.place(base, "")+" → "+x.head.place(head, ""))
	slices.Sort(j.facts)
	return j
}

// place returns the position of a pool or of one of its fields. For a pool from a table, it is the position of the
// comprehension that generates the rows' pools.
func (f *fleet) place(p *pool, path string) string {
	switch {
	case p == nil:
		return ""
	case path == "" && p.table:
		return f.places["rows"]
	case path == "":
		return f.places[strconv.Itoa(p.id)]
	}
	return f.places[fmt.Sprintf("%d/%s", p.id, path)]
}

// countMost sets the number of runners that each side allows. It is 0 if policies deny the pod.
func (j *judged) countMost(x *pair) {
	if j.ran() {
		j.most[0] = j.was.Max
	}
	if x.runs(j) != nil {
		j.most[1] = j.is.Max
	}
	j.otherLimits = j.otherLimits || j.most[0] != j.most[1]
}

func isNews(fact string) bool {
	return strings.HasPrefix(fact, "from ") || strings.HasPrefix(fact, "New ") || strings.HasPrefix(fact, "Fixed ")
}

func (j *judged) losesJobs() bool { return j.base != nil && j.hasClass("Replaced") && !j.base.rest }

func (j *judged) hasClass(class string) bool { return slices.Contains(j.classes, class) }

func (j *judged) has(level, state string) bool {
	for finding, s := range j.states {
		if strings.HasPrefix(finding, level) && s == state {
			return true
		}
	}
	return false
}

// compareFields finds the fields that differ, and the classes of the change.
func (x *pair) compareFields(j *judged) {
	switch {
	case j.base == nil:
		j.change = "Added"
		return
	case j.head == nil:
		j.change, j.classes = "Deleted", []string{"Replaced"}
		return
	case name(j.base) != name(j.head):
		j.change = "Renamed"
	}
	was, is := values(x.base.leaves(j.base)), values(x.head.leaves(j.head))
	sameLabels := slices.Equal(folded(j.base.labels), folded(j.head.labels))
	found := map[string]bool{}
	for _, path := range union(was, is) {
		if was[path] == is[path] {
			continue
		}
		side, p := x.head, j.head
		if is[path] == "" {
			side, p = x.base, j.base
		}
		class := classOf(path)
		if path == "spec.runnerLabels" && sameLabels {
			class = "Settings"
		}
		found[class] = true
		j.facts = append(j.facts, fmt.Sprintf("%s of %s at %s", class, path, side.place(p, path)))
	}
	if j.change == "Same" && len(found) > 0 {
		j.change = "Changed"
	}
	for _, class := range classes {
		if found[class.name] {
			j.classes = append(j.classes, class.name)
		}
	}
	j.becomesQuiet = j.head.suspended && !j.base.suspended
}

func classOf(path string) string {
	for _, class := range classes {
		if slices.ContainsFunc(class.paths, func(prefix string) bool { return strings.HasPrefix(path, prefix) }) {
			return class.name
		}
	}
	return ""
}

func values(leaves []leaf) map[string]string {
	all := map[string]string{}
	for _, l := range leaves {
		for _, path := range strings.Fields(l.paths) {
			all[path] = l.value
		}
	}
	return all
}

func union(a, b map[string]string) []string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return slices.Sorted(maps.Keys(all))
}

// folded returns labels in the form in which GitHub compares them: case-insensitive and in any order.
func folded(labels []string) []string {
	var all []string
	for _, l := range labels {
		all = append(all, strings.ToLower(l))
	}
	slices.Sort(all)
	return all
}

func (x *pair) compareFindings(j *judged) {
	was, is := map[string]string{}, map[string]string{}
	if j.base != nil {
		was = x.base.findings(j.base)
	}
	if j.head != nil {
		is = x.head.findings(j.head)
		j.unasked = x.head.unasked(j.head)
	}
	for _, finding := range union(was, is) {
		side, p := x.head, j.head
		_, before := was[finding]
		_, after := is[finding]
		state := "Still"
		switch {
		case !before:
			state = "New"
		case !after:
			state, side, p = "Fixed", x.base, j.base
		}
		j.states[finding] = state
		path := cmp.Or(is[finding], was[finding])
		_, code, _ := strings.Cut(finding, " ")
		j.facts = append(j.facts, fmt.Sprintf("%s %s at %s by %s", state, finding, side.place(p, path), side.places["rule/"+code]))
	}
}

// decided returns the numbers in force at the head. While a policy fails, these are the numbers of the last
// decision, the declared numbers, or the numbers after the limits that do not fail: whichever is lowest.
func (x *pair) decided(j *judged, t time.Time) numbers {
	n, ok := x.head.limited(j.head, t)
	if ok {
		return n
	}
	if j.base == nil || j.change == "Renamed" {
		return numbers{}
	}
	last, _ := x.base.limited(j.base, at)
	declared := j.head.scheduled(t)
	return numbers{min(n.Min, last.Min, declared.Min), min(n.Max, last.Max, declared.Max), min(n.Idle, last.Idle, declared.Idle)}.cut()
}

func (x *pair) compareLimits(j *judged) {
	limits := [2]string{"none", "none"}
	if j.base != nil {
		j.was, _ = x.base.limited(j.base, at)
		limits[0] = x.base.limits(j.base)
	}
	if j.head != nil {
		j.is = x.decided(j, at)
		limits[1] = x.head.limits(j.head)
	}
	j.facts = append(j.facts, "limits "+limits[0]+" → "+limits[1])
	if j.base == nil || j.head == nil {
		return
	}
	j.otherLimits = limits[0] != limits[1] || j.base.scale != j.head.scale
	if was, is := j.was, j.is; was != is || j.head.suspended || x.sameNumbers(j) {
		return
	}
	for t := at; t.Before(at.Add(x.horizon(j))); t = t.Add(tick) {
		was, _ := x.base.limited(j.base, t)
		if is := x.decided(j, t); was != is {
			j.facts = append(j.facts, "from "+t.Format(rfc3339))
			return
		}
	}
}

// sameNumbers reports whether all inputs of the numbers are the same on both sides.
func (x *pair) sameNumbers(j *judged) bool {
	a, b := *j.base, *j.head
	return fmt.Sprint(x.base.rules, x.base.rules.quiet, a.scale, a.windows, a.team, a.tier, a.labels) == fmt.Sprint(x.head.rules, x.head.rules.quiet, b.scale, b.windows, b.team, b.tier, b.labels)
}

func (x *pair) horizon(j *judged) time.Duration {
	for _, w := range slices.Concat(j.base.windows, j.head.windows) {
		if w.once {
			return year
		}
	}
	return week
}

// isRefused reports whether policies reject the pod at the head.
func (j *judged) isRefused() bool { return j.has("Deny", "New") || j.has("Deny", "Still") || j.unasked }

// ran reports whether the pool had runners at the base.
func (j *judged) ran() bool {
	return j.base != nil && !j.has("Deny", "Still") && !j.has("Deny", "Fixed")
}

// runs returns the pool whose template the runners have at the head. This is the base's template if it stays in
// use. It returns nil if there are no runners.
func (x *pair) runs(j *judged) *pool {
	isNewTemplate := j.change == "Changed" && j.hasClass("ReplacesRunners")
	switch {
	case j.head == nil || j.has("Deny", "Still"):
		return nil
	case !j.isRefused():
		return j.head
	case j.base == nil || j.change == "Renamed":
		return nil // none of its templates was ever allowed
	case !isNewTemplate && j.has("Deny", "New"):
		return nil
	case !isNewTemplate:
		return j.head // a template that was allowed before stays in use
	}
	previous := *j.base
	previous.group, previous.labels, previous.ns = j.head.group, j.head.labels, j.head.ns
	for finding := range x.head.findings(&previous) {
		if strings.HasPrefix(finding, "Deny") {
			return nil // the previous template is denied as well
		}
	}
	return &previous
}

func (x *pair) compareCost(j *judged) {
	if x.head.prices == nil {
		return // the cost is unknown
	}
	if j.base != nil {
		if j.ran() {
			j.rates[0] = x.priced().rate(j.base)
		}
		j.cost[0] = x.priced().cost(j.base, j.rates[0], func(t time.Time) numbers { n, _ := x.base.limited(j.base, t); return n })
	}
	if j.head != nil {
		if p := x.runs(j); p != nil {
			j.rates[1] = x.head.rate(p)
		}
		j.cost[1] = x.head.cost(j.head, j.rates[1], func(t time.Time) numbers { return x.decided(j, t) })
	}
}

// priced returns the base with prices. If the base has none, it uses the head's.
func (x *pair) priced() *fleet {
	base := *x.base
	base.prices = cmp.Or(x.base.prices, x.head.prices)
	return &base
}
