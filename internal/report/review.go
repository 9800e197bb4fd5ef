// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/review"
	"github.com/corral-dev/corral/internal/wording"
)

// span is a piece of text; code is shown as it is written in files.
type span struct {
	text string
	code bool
}

// phrase is one line of a report, in pieces.
type phrase []span

func plainly(format string, args ...any) phrase { return phrase{{text: fmt.Sprintf(format, args...)}} }

func code(text string) phrase { return phrase{{text: text, code: true}} }

// each makes a phrase of each text.
func each(texts []string) []phrase {
	var all []phrase
	for _, text := range texts {
		all = append(all, plainly("%s", text))
	}
	return all
}

// headed begins a section about something that has a name, with where it is declared.
func headed(kind, name, said string, at review.Places) section {
	heading := join(plainly("%s ", kind), code(name), plainly(": %s", said))
	if at := cmp.Or(where(at.HeadAt), where(at.BaseAt)); at != "" {
		heading = join(heading, plainly(" – "), code(at))
	}
	return section{heading: heading}
}

// join puts pieces together.
func join(parts ...phrase) phrase { return slices.Concat(parts...) }

// table has a row of headings; no row is longer.
type table struct {
	head []string
	rows []([]phrase)
}

// section is a part of a report about one thing.
type section struct {
	heading phrase
	// lines, one thought each.
	lines []phrase
	// more counts lines that there would be, too.
	more int
	// fields that differ; they are folded away where a form can do that.
	fields *table
	// folded are more lines that are.
	folded *folded
}

// folded are lines under a heading, in code.
type folded struct {
	heading string
	lines   []string
}

// telling is a review in words, from which forms for people are written.
type telling struct {
	headline phrase
	summary  []phrase
	// overview of pools; nil without any.
	overview *table
	sections []section
	notes    []phrase
}

// tell puts a result in words.
func tell(r *review.Result) telling {
	t := telling{headline: headline(r), summary: summary(r), overview: overview(r)}
	t.add(diagnosticsOf("Why "+r.Problem(), r.Head)...)
	for i := range r.Pools {
		t.add(poolSection(&r.Pools[i]))
	}
	t.add(overlapSection(r)...)
	t.add(policySections(r)...)
	t.add(connectionSections(r)...)
	t.add(priceSection(r)...)
	t.add(recordedSection(r)...)
	t.add(diagnosticsOf("Why the base can't be compared", r.Base)...)
	if r.Cost != nil {
		t.notes = append(t.notes, each(r.Cost.Assumptions)...)
	}
	t.notes = append(t.notes, each(r.Notes)...)
	return t
}

func (t *telling) add(sections ...section) { t.sections = append(t.sections, sections...) }

func headline(r *review.Result) phrase {
	if r.Verdict == review.Broken || r.Comparable() {
		return verdict(r)
	}
	text := "The base can't be compared: " + compile.Format(r.Base.Diagnostics[0])
	if more := len(r.Base.Diagnostics) - 1; more > 0 {
		text += fmt.Sprintf(" (and %s)", wording.Count(more, "more problem"))
	}
	return plainly("%s", text)
}

func verdict(r *review.Result) phrase {
	switch r.Verdict {
	case review.Broken:
		return plainly("Broken: %s (%s)", r.Problem(), wording.Count(len(r.Head.Diagnostics), "problem"))
	case review.Denied:
		text := fmt.Sprintf("Denied: policies deny %s of the head", wording.Count(r.Summary.Denied, "pool"))
		if r.Comparable() && r.Summary.NewlyDenied < r.Summary.Denied {
			text += fmt.Sprintf(", %d of them newly", r.Summary.NewlyDenied)
		}
		return plainly("%s", text)
	}
	if !r.HasChanges() {
		return plainly("Allowed: nothing changes")
	}
	return plainly("Allowed: no policy denies it")
}

func summary(r *review.Result) []phrase {
	if r.Failed {
		return nil
	}
	if r.Verdict == review.Broken && r.Head.Pools == 0 { // nothing else was read
		return []phrase{join(plainly("Compared: "), code(r.Base.Name), plainly(" with "), code(r.Head.Name))}
	}
	if r.Verdict != review.Broken && !r.Comparable() {
		return append([]phrase{verdict(r), join(plainly("Looked at alone: "), code(r.Head.Name), plainly(" (%s)", wording.Count(r.Head.Pools, "pool")))}, policiesAndCost(r)...)
	}
	lines := []phrase{join(plainly("Compared: "), code(r.Base.Name), plainly(" (%s) with ", wording.Count(r.Base.Pools, "pool")), code(r.Head.Name),
		plainly(" (%s)", wording.Count(r.Head.Pools, "pool")))}
	return append(append(lines, plainly("Pools: %s", poolCounts(r))), policiesAndCost(r)...)
}

// policiesAndCost sum up what was asked, what it costs, and warnings of the change.
func policiesAndCost(r *review.Result) []phrase {
	var lines []phrase
	if asked := len(r.Head.Policies); asked+len(r.Base.Policies) > 0 {
		said := "as before, "
		switch {
		case !r.Comparable():
			said = ""
		case r.Base.Digest != r.Head.Digest:
			said = "not those of the base, "
		}
		lines = append(lines, plainly("Policies: %s asked, %sat %s (%s); %s", wording.Count(asked, "policy"), said, r.At.Format("2006-01-02T15:04:05Z07:00"), r.Zone,
			wording.Count(r.Summary.Warnings, "warning")))
	}
	if line := costLine(r.Cost); line != nil {
		lines = append(lines, join(plainly("Cost of all pools by month: "), line))
	}
	for _, warning := range r.Warnings {
		lines = append(lines, plainly("Warning: %s", warning))
	}
	return lines
}

// poolCounts counts pools by what becomes of them.
func poolCounts(r *review.Result) string {
	s := r.Summary
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{s.Added, "added"}, {s.Deleted, "deleted"}, {s.Renamed, "renamed"}, {s.Changed, "changed"}, {s.Moved, "moved by policies"}, {s.Same, "the same"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	var classes []string
	for _, class := range review.Classes() {
		if n := s.Classes[class]; n > 0 {
			classes = append(classes, fmt.Sprintf("%d %s", n, classWords[class]))
		}
	}
	text := cmp.Or(strings.Join(parts, ", "), "none")
	if len(classes) > 0 {
		text += " (" + strings.Join(classes, ", ") + ")"
	}
	return text
}

// classWords name classes by what they do.
var classWords = map[review.Class]string{
	review.Identity: "identity", review.Routing: "routes jobs otherwise", review.Template: "rolls runners",
	review.Scale: "scale only", review.Settings: "settings only",
}

// changeWord says what becomes of a pool.
func changeWord(p *review.Pool) string {
	var classes []string
	for i, c := range p.Classes {
		word := classWords[c]
		if i > 0 || len(p.Classes) > 1 {
			word = strings.TrimSuffix(word, " only")
		}
		classes = append(classes, word)
	}
	said := strings.Join(classes, ", ")
	switch p.Change {
	case review.Added:
		return "added"
	case review.Deleted:
		return "deleted"
	case review.Renamed:
		return strings.TrimSuffix("renamed: "+said, ": ")
	case review.Moved:
		return "moved by policies"
	case review.Same:
		return "as before"
	case review.Uncompared:
		return "not compared"
	}
	return cmp.Or(said, "changed")
}

// overview has a row for each pool.
func overview(r *review.Result) *table {
	if len(r.Pools) == 0 {
		return nil
	}
	t := &table{head: []string{"Pool", "Change", "Max declared", "Max in force", "Policies"}}
	if r.Cost != nil {
		t.head = append(t.head, "Typical cost by month")
	}
	for i := range r.Pools {
		p := &r.Pools[i]
		row := []phrase{
			code(wording.Qualified(p.Namespace, p.Name)), plainly("%s", changeWord(p)),
			plainly("%s", both(p.Before, p.After, func(l *review.Limits) string { return declared(l, "max") })),
			plainly("%s", both(p.Before, p.After, func(l *review.Limits) string { return effective(l, "max", "undecided") })),
			plainly("%s", judgement(p)),
		}
		if r.Cost != nil {
			cost := "unknown"
			if p.Cost != nil {
				cost = typical(p.Cost) + " " + p.Cost.Currency
			}
			row = append(row, plainly("%s", cost))
		}
		t.rows = append(t.rows, row)
	}
	return t
}

// judgement sums up what policies say of a pool at the head.
func judgement(p *review.Pool) string {
	if p.Change == review.Deleted {
		return "–"
	}
	counts := map[review.Level]int{}
	fixed := 0
	for _, f := range p.Findings {
		if f.State == review.Fixed {
			fixed++
			continue
		}
		counts[f.Level]++
	}
	var parts []string
	if counts[review.Failure] > 0 {
		parts = append(parts, "failed")
	}
	if counts[review.Deny] > 0 {
		parts = append(parts, "denied")
	}
	if n := counts[review.Warn]; n > 0 {
		parts = append(parts, wording.Count(n, "warning"))
	}
	if fixed > 0 {
		parts = append(parts, fmt.Sprintf("%d fixed", fixed))
	}
	return cmp.Or(strings.Join(parts, ", "), "allowed")
}

func diagnosticsOf(heading string, side review.Revision) []section {
	if len(side.Diagnostics) == 0 {
		return nil
	}
	s := section{heading: plainly("%s", heading)}
	for _, d := range side.Diagnostics {
		line := plainly("%s", d.Message)
		if at := strings.TrimSuffix(strings.TrimSuffix(compile.Format(d), d.Message), ": "); at != "" {
			line = join(code(at), plainly(": "), line)
		}
		s.lines = append(s.lines, line)
	}
	return []section{s}
}

func declared(l *review.Limits, field string) string { return wording.Max(*l.Declared.Number(field)) }

func effective(l *review.Limits, field, undecided string) string {
	if l.Effective == nil {
		return undecided
	}
	return wording.Max(*l.Effective.Number(field))
}

// both tells a value of something on both sides; it is nil on a side that doesn't have it.
func both[T any](before, after *T, of func(*T) string) string {
	var was, is string
	if before != nil {
		was = of(before)
	}
	if after != nil {
		is = of(after)
	}
	return pair(was, is)
}

// pair tells a value on both sides.
func pair(before, after string) string {
	switch {
	case before == after, before == "":
		return after
	case after == "":
		return before + " → –"
	}
	return before + " → " + after
}

// where writes a place with its column, as compilers do; empty if there is none.
func where(p *review.Place) string {
	if p == nil || p.File == "" {
		return ""
	}
	text := Place(*p).String()
	if p.Line > 0 && p.Column > 0 {
		text += ":" + strconv.Itoa(p.Column)
	}
	return text
}
