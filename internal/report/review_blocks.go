// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/review"
	"github.com/corral-dev/corral/internal/wording"
)

// block is one thing that a review tells: of one subject, or once of all those of which it is true.
type block struct {
	class
	// names of the subjects, which are of a kind as pool.
	kind  string
	names []string
	// places of the lines that changed, a subject each: the first is shown, and how many others there are. Path is of the field that is judged;
	// source is where a rule stands.
	places []Place
	path   string
	source Place
	// known is what code scanning knows it again by beside its rule and field: nothing that is another when a subject joins. Empty of what is
	// alone: it is what is said of whom.
	known string
	// said in the heading.
	said string
	// lines are told in all forms, details to people alone: they change from day to day. Of each subject there are those of its own, and alone
	// are those of one that nobody joins.
	lines, details, own, alone []string
	cost                       *review.Cost
	// fields that differ, and the lines of a diff, are folded away where a form can do that.
	fields []review.FieldChange
	diff   []string
}

// class is what a block is told and counted as. One without a rule is no finding.
type class struct {
	label string
	level Level
	rule  string
	title string
}

// Classes of blocks, the worst first.
var classes = []class{
	{"problem", Error, "corral.definition", "Definition refused"},
	{"base that can't be compared", Warning, "corral.review.base", "The base can't be compared"},
	{"deleted", Warning, "corral.review.deleted", "Pool deleted"},
	{"renamed", Warning, "corral.review.renamed", "Pool renamed"},
	{"replaced", Warning, "corral.review.replaced", "Another pool to GitHub"},
	{"undecided", Error, "corral.policy.failed", "Policy failed"},
	{"denied", Error, "", "Denied by policy"},
	{"warning", Warning, "corral.review.warning", "Warning of the change"},
	{"reroutes jobs", Warning, "corral.review.reroutes-jobs", "Jobs go elsewhere"},
	{"for the same jobs", Warning, "corral.review.overlap", "Pools for the same jobs"},
	{"replaces runners", Note, "corral.review.replaces-runners", "Another template"},
	{"connection", Note, "corral.review.connection", "Connection changed"},
	{"policy", Note, "corral.review.policy", "Policy changed"},
	{"changed by policies alone", Note, "corral.review.moved", "Changed by policies alone"},
	{"limits", Note, "corral.review.limits", "Other limits"},
	{"prices", Note, "corral.review.prices", "Prices changed"},
	{"added", "", "", ""},
	{"not compared", "", "", ""},
	{"newly warned of", Warning, "", "Warning by policy"},
	{"settings", Note, "corral.review.settings", "Other settings"},
	{"audit", Note, "corral.policy.audit", "Audited policy"},
	{"as before", "", "", ""},
	{"no longer", "", "", ""},
	{"recorded decisions", "", "", ""},
	{"diff", "", "", ""},
}

func rank(label string) int {
	return slices.IndexFunc(classes, func(c class) bool { return c.label == label })
}

func classOf(label string) class { return classes[rank(label)] }

// blockOf is a block of one subject, with the place of what changes of it.
func blockOf(label, kind, name string, at Place) block {
	return block{class: classOf(label), kind: kind, names: []string{name}, places: []Place{at}}
}

// addBlocks adds the blocks of a result, the worst first.
func (t *telling) addBlocks(r *review.Result) {
	t.problems(r)
	for _, text := range r.Warnings {
		t.add(block{class: classOf("warning"), said: "warning: " + text, known: strings.SplitN(text, ":", 2)[0]})
	}
	causes := map[string]Place{}
	for _, p := range r.Policies {
		for _, name := range p.Moved {
			causes[name] = changed(p.Places, p.Fields, "")
		}
	}
	for i := range r.Pools {
		p := &r.Pools[i]
		name := wording.Qualified(p.Namespace, p.Name)
		if p.Change != review.Same { // what policies say is told elsewhere
			t.add(poolBlock(p, name, causes))
		}
		for _, f := range p.Findings {
			t.add(findingBlock(name, f))
		}
	}
	for _, o := range r.Overlaps {
		b := blockOf("for the same jobs", "pool", o.Pool, o.At)
		b.said, b.known, b.lines = o.Message, o.Message, []string{"fix: give one of them another label or runner group, if that isn't meant"}
		t.add(b)
	}
	t.policies(r.Policies)
	t.connections(r.Connections)
	t.prices(r.Prices)
	t.recorded(r.Recorded)
	if r.Diff != "" {
		t.add(block{class: classOf("diff"), said: "the objects as they are applied", diff: strings.Split(strings.TrimSuffix(r.Diff, "\n"), "\n")})
	}
	slices.SortStableFunc(t.blocks, func(a, b *block) int { return rank(a.label) - rank(b.label) })
}

// add adds a block, or its subjects to the one that says the same. What is known by its subject stays alone.
func (t *telling) add(b block) {
	says := []any{b.class, when(b.known == "", "%q", b.names), b.said, afterSpec(b.path), b.source, b.lines, b.details}
	for _, f := range b.fields {
		says = append(says, f.Path, f.Before, f.After)
	}
	key := fmt.Sprintf("%q", says)
	same, known := t.said[key]
	if !known {
		t.said[key], t.blocks = &b, append(t.blocks, &b)
		return
	}
	same.names, same.places, same.own = append(same.names, b.names...), append(same.places, b.places...), append(same.own, b.own...)
	same.cost, same.alone = plus(same.cost, b.cost), nil
}

// place is the first, and how many others there are.
func (b *block) place() (at Place, others int) {
	if len(b.places) > 0 {
		at, others = b.places[0], sets.New(b.places...).Len()-1
	}
	return at, others
}

// groups puts those together that have the same key; they stay in the order of the first of each.
func groups[T any](all []T, key func(T) string) (found [][]T) {
	index := map[string]int{}
	for _, one := range all {
		k := key(one)
		i, known := index[k]
		if !known {
			i = len(found)
			index[k], found = i, append(found, nil)
		}
		found[i] = append(found[i], one)
	}
	return found
}

// keyOf is a text that is the same of equal values.
func keyOf(v any) string {
	key, err := json.Marshal(v)
	if err != nil {
		return err.Error() // all of it is plain data
	}
	return string(key)
}

// maxNames bounds how many subjects a heading names, and maxList a line.
const maxNames, maxList = 3, 30

// heading says what is told of whom, and where.
func (b *block) heading(place bool) string {
	line := b.said
	switch {
	case len(b.names) == 0:
	case len(b.names) <= maxNames:
		kind := strings.TrimLeft(wording.Count(len(b.names), b.kind), "0123456789 ")
		line = fmt.Sprintf("%s %s: %s", kind, listed(b.names, maxList), line)
	default:
		line = fmt.Sprintf("%s: %s", wording.Count(len(b.names), b.kind), line)
	}
	at, others := b.place()
	switch {
	case !place || at.File == "":
	case b.label == "problem": // as compilers do
		line = code(at.String()) + ": " + line
	default:
		line += " – " + code(at.String()) + when(others > 0, " and %s", wording.Count(others, "other place"))
	}
	return line
}

// list names the subjects that the heading only counts.
func (b *block) list() []string {
	if len(b.names) <= maxNames {
		return nil
	}
	return []string{listed(b.names, maxList)}
}

// listed names some, and counts the others.
func listed(names []string, most int) string {
	var shown []string
	for _, name := range names[:min(len(names), most)] {
		shown = append(shown, code(name))
	}
	more := len(names) - most
	return strings.Join(shown, ", ") + when(more > 0, " and %d more", more)
}

// body is what people read below the heading.
func (b *block) body() []string {
	lines := slices.Concat(b.list(), present(when(b.path != "", "field: %s", code(b.path))), b.lines, b.details, b.alone)
	if c := b.cost; c != nil && keyOf(c.Before) != keyOf(c.After) {
		lines = append(lines, costLine("cost by month: ", c)+when(c.Basis != "", " (%s)", c.Basis))
	}
	return append(lines, b.own...)
}

// differences are a line for each field.
func (b *block) differences() (lines []string) {
	for _, f := range b.fields {
		at := both(f.BaseAt, f.HeadAt, (*Place).String)
		lines = append(lines, fmt.Sprintf("%s: %s → %s  (%s)", code(f.Path), code(readable(f.Before)), code(readable(f.After)), code(at)))
	}
	return lines
}

// ReviewFindings lists what of a review belongs to a line of a file: for annotations and SARIF. Denials are errors. Changes that
// lose jobs or send them elsewhere, and what policies newly warn of, are warnings; the rest are notes.
func ReviewFindings(r *review.Result) (findings []Finding) {
	for _, b := range tell(r).blocks {
		if b.rule == "" {
			continue
		}
		f := Finding{Level: b.level, Rule: b.rule, Title: b.title, Path: b.path, Source: b.source}
		f.Place, _ = b.place()
		f.Known = keyOf([]string{cmp.Or(b.known, text(b.heading(false))), afterSpec(b.path)})
		f.Message = text(b.heading(false))
		for _, line := range slices.Concat(b.list(), b.lines) {
			f.Message += "\n" + text(line)
		}
		findings = append(findings, f)
	}
	return findings
}

// problems say why a side can't be read.
func (t *telling) problems(r *review.Result) {
	c := classOf("problem")
	switch {
	case r.Failed:
		c.rule, c.title = "corral.review.failed", "The review failed"
	case r.Head.Unpriced:
		c.rule, c.title = "corral.prices", "Prices can't be read"
	}
	for _, d := range r.Head.Diagnostics {
		t.add(block{class: c, said: d.Message, path: d.Path, places: []Place{{File: d.File, Line: int(d.Line), Column: int(d.Column)}}})
	}
	if n := len(r.Base.Diagnostics); n > 0 {
		b := block{class: classOf("base that can't be compared"), said: fmt.Sprintf("%s of the base %s, so what changes isn't known", wording.Count(n, "problem"), code(r.Base.Name))}
		for _, d := range r.Base.Diagnostics {
			b.lines = append(b.lines, compile.Format(d))
		}
		t.add(b)
	}
}

// afterSpec is the path of a field in its object.
func afterSpec(path string) string {
	if _, field, ok := strings.Cut(path, ".spec."); ok {
		return field
	}
	return path
}

// findingClass returns the class of what a policy says, and how that begins.
func findingClass(f *review.Finding) (label, said string) {
	pair := map[review.Level][2]string{
		review.Failure: {"undecided", "undecided, a policy fails"}, review.Deny: {"denied", "denied"}, review.Warn: {"newly warned of", "warned of"}, review.Audit: {"audit", "audited"},
	}[f.Level]
	label, said = pair[0], pair[1]
	switch f.State {
	case review.New:
		said = "newly " + said
	case review.Fixed:
		label, said = "no longer", "no longer "+said
	case review.Still:
		if said += " as before"; f.Level == review.Warn || f.Level == review.Audit {
			label = "as before"
		}
	}
	return label, said
}

// findingBlock is what a policy says of a pool's pod.
func findingBlock(pool string, f review.Finding) block {
	label, said := findingClass(&f)
	b := blockOf(label, "pool", pool, f.At)
	b.said, b.path, b.source = said+": "+f.Message, f.Path, Place{File: f.Rule.File, Line: int(f.Rule.Line)}
	b.known = text(b.said)
	if b.level != "" && b.rule == "" {
		if b.rule = f.Rule.Name; f.Code != "" && !strings.Contains(b.rule, f.Code) {
			b.rule += "/" + f.Code
		}
	}
	by := byRule(f.Rule)
	b.lines = present(when(by != "", "rule: %s", by), when(f.Remediation != "" && f.State != review.Fixed, "fix: %s", f.Remediation))
	return b
}

// byRule names a rule, its policy and its place.
func byRule(r v1alpha1.RuleReference) string {
	at := Place{File: r.File, Line: int(r.Line)}.String()
	switch {
	case r.Name == "" && r.Policy == "":
		return ""
	case r.Name == "":
		return code(r.Policy)
	case at == "":
		return code(r.Name) + " of " + code(r.Policy)
	}
	return code(r.Name) + ", " + code(at)
}

// changed is the place of what changes: of the first field, or else of the whole; of what is only at the base there is the file, as its lines are
// others now.
func changed(at review.Places, fields []review.FieldChange, class review.Class) Place {
	i := max(0, slices.IndexFunc(fields, func(f review.FieldChange) bool { return f.Class == class && f.HeadAt != nil }))
	switch {
	case len(fields) > i && fields[i].HeadAt != nil && fields[i].HeadAt.File != "":
		return *fields[i].HeadAt
	case at.HeadAt != nil:
		return *at.HeadAt
	case at.BaseAt != nil:
		return Place{File: at.BaseAt.File}
	}
	return Place{}
}

// movesNone is said of a policy that moves no pool. It has no time: that would make it another alert of code scanning each day.
const movesNone = "moves no pool that is declared as before, neither now nor in the week to come"

// policies tell of policies that change.
func (t *telling) policies(policies []review.PolicyChange) {
	for _, p := range policies {
		b := blockOf("policy", "policy", p.Policy, changed(p.Places, p.Fields, ""))
		b.said = strings.ToLower(string(p.Change)) + when(len(p.What) > 0, ": %s", strings.Join(p.What, ", "))
		b.tell(p.Fields)
		mode := both(p.Before, p.After, func(x *review.PolicyState) string { return string(x.Mode) })
		binds := both(p.Before, p.After, func(x *review.PolicyState) string { return wording.Count(x.Pools, "pool") })
		b.lines = append(b.lines, movesNone)
		if n := len(p.Moved); n > 0 {
			b.lines[0] = fmt.Sprintf("moves %s not declared otherwise: ", review.Agreeing(n, "pool", "that is", "that are")) + listed(p.Moved, maxList)
		}
		b.details = append(b.details, fmt.Sprintf("mode %s, binds %s", mode, binds))
		t.add(b)
	}
}

// connections tell of connections that change.
func (t *telling) connections(connections []review.Connection) {
	for _, c := range connections {
		b := blockOf("connection", "connection", wording.Qualified(c.Namespace, c.Name), changed(c.Places, c.Fields, c.Class))
		b.said, b.lines = strings.ToLower(string(c.Change)), slices.Clip(c.Effects)
		if c.Change == review.Changed {
			b.said = c.Class.Text()
		}
		b.tell(c.Fields)
		if c.Class == review.Replaced {
			b.label, b.level = classOf("replaced").label, Warning
		}
		b.lines = append(b.lines, present(when(len(c.Pools) > 0, "used by %s", listed(c.Pools, maxList)))...)
		t.add(b)
	}
}

// prices tell which prices differ.
func (t *telling) prices(p *review.PriceChange) {
	if p == nil {
		return
	}
	b := block{class: classOf("prices"), said: "prices"}
	b.tell(p.Fields)
	b.places = []Place{changed(review.Places{HeadAt: &review.Place{File: cmp.Or(p.HeadFile, p.BaseFile)}}, p.Fields, "")}
	t.add(b)
}

// recorded tells what recorded decisions would have been.
func (t *telling) recorded(rec *review.Recorded) {
	if rec == nil {
		return
	}
	b := block{class: classOf("recorded decisions")}
	b.said = fmt.Sprintf("Recorded decisions: %s judged again, %d passed over", wording.Count(rec.Decisions, "decision"), rec.Skipped) +
		when(!rec.From.IsZero(), ", from %s to %s", rec.From.Format(rfc3339), rec.To.Format(rfc3339)) +
		fmt.Sprintf(": %d would have been decided otherwise than by the base's policies", rec.Differ)
	b.details = present(
		when(rec.Unbound > 0, "%s passed over because no policy binds the pool: policies that name no namespace are of the one that --namespace names",
			wording.Count(rec.Unbound, "decision")),
		when(rec.Drifted > 0, "%s would have been taken otherwise by the base's policies already: others were asked then, or the log leaves out what they read",
			wording.Count(rec.Drifted, "decision")))
	for _, c := range rec.Changed {
		line := fmt.Sprintf("%s %s %s: %s → %s", c.Time.Format(rfc3339), code(c.Pool), c.Decision, c.Before, c.After)
		for _, rule := range c.Rules {
			line += " (" + byRule(rule) + ")"
		}
		b.details = append(b.details, line+when(c.Waiting > 0, "; %s would have waited", wording.Count(c.Waiting, "job"))+
			when(c.Inexact, "; the log leaves out some of what is asked"))
	}
	more := rec.Differ - len(rec.Changed)
	b.details = append(b.details, present(when(more > 0, "and %d more", more))...)
	t.add(b)
}
