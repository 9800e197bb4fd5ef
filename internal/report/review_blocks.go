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
	"github.com/corral-dev/corral/internal/review"
	"github.com/corral-dev/corral/internal/wording"
)

// block is one statement of a review, about one subject or about all subjects to which it applies.
type block struct {
	class
	// Names of the subjects, and their Kind, for example pool.
	Kind  string
	Names []string
	// places are the changed lines, one per subject. Reports show the first of them, and the number of other places. Path is
	// the evaluated field, and source the place of the rule.
	places []Place
	Path   string
	source Place
	// known, together with the rule and the field, identifies the block in code scanning. It must not change when a subject is
	// added. If it is empty, the statement and the subjects identify the block, and add merges it only with a block of the
	// same names and places.
	known string
	// Statement is the text of the heading after the subjects.
	Statement string
	// Lines appear in all formats. Details change from day to day, so they appear only in formats for people, not in
	// annotations and SARIF. Own contains lines about each subject. Alone contains lines that appear only if the block has a
	// single subject.
	Lines, Details, Own, Alone []string
	Cost                       *review.Cost
	// Formats that support it show the fields that differ, and diff, which is a unified diff, collapsed.
	fieldList
	diff []string
}

// fieldList contains fields that differ. more is the number of further fields that the result does not list.
type fieldList struct {
	fields []review.FieldChange
	more   int
}

// count returns the number of fields that differ.
func (l fieldList) count() int { return len(l.fields) + l.more }

// class determines the severity and the rule of a block. A block without a rule is not a finding.
type class struct {
	Label string
	level Level
	rule  string
	title string
}

// Classes of blocks, the most severe first.
var classes = []class{
	{"problem", Error, "corral.definition", "Definition refused"},
	{"base that can't be compared", Warning, "corral.review.base", "The base can't be compared"},
	{"deleted", Warning, "corral.review.deleted", "Pool deleted"},
	{"renamed", Warning, "corral.review.renamed", "Pool renamed"},
	{"replaced", Warning, "corral.review.replaced", "Replaced on GitHub"},
	{"undecided", Error, "corral.policy.failed", "Policy failed"},
	{"denied", Error, "", "Denied by policy"},
	{"warning", Warning, "corral.review.warning", "Warning about the change"},
	{"reroutes jobs", Warning, "corral.review.reroutes-jobs", "Jobs go elsewhere"},
	{"for the same jobs", Warning, "corral.review.overlap", "Pools match the same jobs"},
	{"replaces runners", Note, "corral.review.replaces-runners", "Another template"},
	{"connection", Note, "corral.review.connection", "Connection changed"},
	{"policy", Note, "corral.review.policy", "Policy changed"},
	{"changed by policies alone", Note, "corral.review.moved", "Changed by policies alone"},
	{"limits", Note, "corral.review.limits", "Other limits"},
	{"prices", Note, "corral.review.prices", "Prices changed"},
	{"added", "", "", ""},
	{"not compared", "", "", ""},
	{"newly warned", Warning, "", "Warning by policy"},
	{"settings", Note, "corral.review.settings", "Settings changed"},
	{"audit", Note, "corral.policy.audit", "Audited policy"},
	{"as before", "", "", ""},
	{"no longer", "", "", ""},
	{"recorded decisions", "", "", ""},
	{"diff", "", "", ""},
}

func rank(label string) int {
	return slices.IndexFunc(classes, func(c class) bool { return c.Label == label })
}

func classOf(label string) class { return classes[rank(label)] }

// addBlocks adds the blocks of a result, the most severe first.
func (t *renderedReview) addBlocks(r *review.Result) {
	t.problems(r)
	for _, text := range r.Warnings {
		t.add(block{class: classOf("warning"), Statement: "warning: " + text, known: strings.SplitN(text, ":", 2)[0]})
	}
	for i := range r.Pools {
		p := &r.Pools[i]
		name := wording.Qualified(p.Namespace, p.Name)
		if p.Change != review.Same { // findings are added separately
			t.add(poolBlock(p, name, r.Policies))
		}
		for _, f := range p.Findings {
			t.add(findingBlock(name, f))
		}
	}
	for _, o := range r.Overlaps {
		t.add(block{
			class: classOf("for the same jobs"), Kind: "pool", Names: []string{o.Pool}, places: []Place{o.At}, Statement: o.Message, known: o.Message,
			Lines: []string{"fix: give one of them another label or runner group, if this isn't intended"},
		})
	}
	t.otherChanges(&r.OtherChanges)
	if r.Recorded != nil {
		t.add(block{class: classOf("recorded decisions"), Statement: words.Phrase("recorded", r.Recorded), Details: words.Sentences("recorded-details", r.Recorded)})
	}
	if r.Diff != "" {
		t.add(block{class: classOf("diff"), Statement: "the objects as they are applied", diff: strings.Split(strings.TrimSuffix(r.Diff, "\n"), "\n")})
	}
	slices.SortStableFunc(t.blocks, func(a, b *block) int { return rank(a.Label) - rank(b.Label) })
}

// add adds a block. If there is a block with the same statement, lines and fields, add adds the subjects, places and costs
// to that block instead. Blocks without known are merged only if their names and places are equal. Otherwise a report would
// show only the first of several places with the same mistake. The same applies to blocks with fields that are not listed,
// because these fields may differ.
func (t *renderedReview) add(b block) {
	parts := []any{b.class, when(b.known == "" || b.more > 0, "%q %v", b.Names, b.places), b.Statement, afterSpec(b.Path), b.source, b.Lines, b.Details}
	for _, f := range b.fields {
		parts = append(parts, f.Path, f.Before, f.After)
	}
	key := fmt.Sprintf("%q", parts)
	same, known := t.byStatement[key]
	if !known {
		t.byStatement[key], t.blocks = &b, append(t.blocks, &b)
		return
	}
	same.Names, same.places, same.Own = append(same.Names, b.Names...), append(same.places, b.places...), append(same.Own, b.Own...)
	same.Cost, same.Alone = plus(same.Cost, b.Cost), nil
}

// At returns the first place; an empty Place if there is none.
func (b *block) At() (at Place) {
	if len(b.places) > 0 {
		at = b.places[0]
	}
	return at
}

// OtherPlaces returns the number of places other than the first.
func (b *block) OtherPlaces() int { return max(0, sets.New(b.places...).Len()-1) }

// groups groups values by key, in the order of the first value of each group.
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

// keyOf returns a text that is equal for equal values.
func keyOf(v any) string {
	key, _ := json.Marshal(v) // plain data can be encoded
	return string(key)
}

// heading returns the statement with its subjects and place.
func (b *block) heading() string { return words.Phrase("heading", b) }

// listed returns at most the given number of names, marked as code, and the number of the others.
func listed(names []string, most int) string {
	var shown []string
	for _, name := range names[:min(len(names), most)] {
		shown = append(shown, code(name))
	}
	more := len(names) - most
	return strings.Join(shown, ", ") + when(more > 0, " and %d more", more)
}

// body returns the lines below the heading.
func (b *block) body() []string { return words.Sentences("body", b) }

// differences returns a line for each field that the result lists.
func (b *block) differences() []string { return words.Sentences("fields", b.fields) }

// ReviewFindings returns the blocks of a review that have a rule, for annotations and SARIF. Refused definitions, failed
// policies and denials are errors. A base that cannot be compared, changes that lose or reroute jobs, overlaps, and new
// policy warnings are warnings. The other blocks are notes.
func ReviewFindings(r *review.Result) (findings []Finding) {
	for _, b := range renderReview(r).blocks {
		if b.rule == "" {
			continue
		}
		statement := text(words.Phrase("statement", b))
		f := Finding{Level: b.level, Rule: b.rule, Title: b.title, Message: statement, Path: b.Path, Source: b.source, Place: b.At()}
		f.Known = keyOf([]string{cmp.Or(b.known, statement), afterSpec(b.Path)})
		if b.Label == "problem" {
			f.Known = keyOf([]string{statement, b.Path, f.Place.File}) // one for each definition with the mistake
		}
		for _, line := range slices.Concat(words.Sentences("names", b), b.Lines) {
			f.Message += "\n" + text(line)
		}
		findings = append(findings, f)
	}
	return findings
}

// problems adds a block for each problem of the head, and one block for all problems of the base.
func (t *renderedReview) problems(r *review.Result) {
	c := classOf("problem")
	switch {
	case r.Failed:
		c.rule, c.title = "corral.review.failed", "The review failed"
	case r.Head.Unpriced:
		c.rule, c.title = "corral.prices", "Prices can't be read"
	}
	for _, d := range r.Head.Diagnostics {
		t.add(block{class: c, Statement: d.Message, Path: d.Path, places: []Place{{File: d.File, Line: int(d.Line), Column: int(d.Column)}}})
	}
	if len(r.Base.Diagnostics) > 0 {
		t.add(block{class: classOf("base that can't be compared"), Statement: words.Phrase("base-problems", r.Base), Lines: words.Sentences("diagnostics", r.Base.Diagnostics)})
	}
}

// afterSpec returns the path of a field within its object.
func afterSpec(path string) string {
	if _, field, ok := strings.Cut(path, ".spec."); ok {
		return field
	}
	return path
}

// findingLevels contains, for each level of a finding, the word for its statement, the label of its block, and the label if
// the base has the finding, too.
var findingLevels = map[review.Level]struct{ word, label, still string }{
	review.Failure: {"undecided, a policy fails", "undecided", "undecided"}, review.Deny: {"denied", "denied", "denied"},
	review.Warn: {"warned", "newly warned", "as before"}, review.Audit: {"audited", "audit", "as before"},
}

// findingStates contains, for each state of a finding, the format of the word in findingLevels.
var findingStates = map[review.State]string{review.New: "newly %s", review.Still: "%s as before", review.Fixed: "no longer %s", review.Unknown: "%s"}

// findingBlock returns the block for a policy's finding about a pool's pod.
func findingBlock(pool string, f review.Finding) block {
	level := findingLevels[f.Level]
	label := cmp.Or(map[review.State]string{review.Fixed: "no longer", review.Still: level.still}[f.State], level.label)
	statement := fmt.Sprintf(findingStates[f.State], level.word) + ": " + f.Message
	b := block{
		class: classOf(label), Kind: "pool", Names: []string{pool}, places: []Place{f.At}, Path: f.Path, source: placeOf(f.Rule),
		Statement: statement, known: text(statement), Lines: words.Sentences("finding", f),
	}
	if b.level != "" && b.rule == "" {
		b.rule = f.Rule.Name
		if f.Code != "" && !strings.Contains(b.rule, f.Code) {
			b.rule += "/" + f.Code
		}
	}
	return b
}

func placeOf(r v1alpha1.RuleReference) Place { return Place{File: r.File, Line: int(r.Line)} }

// changed returns the place of a change: the first changed field of the class, or else the first changed field, or else the
// object. For an object that only the base has, it returns the file without a line, because the head's file has other
// lines.
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

// otherChanges adds the policies, the connections and the prices that change.
func (t *renderedReview) otherChanges(o *review.OtherChanges) {
	for _, p := range o.Policies {
		statement, fields := withFields(words.Phrase("policy", p), fieldList{p.Fields, p.MoreFields})
		t.add(block{
			class: classOf("policy"), Kind: "policy", Names: []string{p.Policy}, places: []Place{changed(p.Places, p.Fields, "")},
			Statement: statement, fieldList: fields, Lines: words.Sentences("moves", p), Details: words.Sentences("mode", p),
		})
	}
	for _, c := range o.Connections {
		statement, fields := withFields(words.Phrase("connection", c), fieldList{c.Fields, c.MoreFields})
		kind := classOf("connection")
		if c.Class == review.Replaced {
			kind.Label, kind.level = classOf("replaced").Label, Warning
		}
		t.add(block{
			class: kind, Kind: "connection", Names: []string{wording.Qualified(c.Namespace, c.Name)}, places: []Place{changed(c.Places, c.Fields, c.Class)},
			Statement: statement, fieldList: fields, Lines: words.Sentences("connection-effects", c),
		})
	}
	if p := o.Prices; p != nil {
		statement, fields := withFields("prices", fieldList{p.Fields, p.MoreFields})
		file := &Place{File: cmp.Or(p.HeadFile, p.BaseFile)}
		t.add(block{class: classOf("prices"), places: []Place{changed(review.Places{HeadAt: file}, p.Fields, "")}, Statement: statement, fieldList: fields})
	}
}
