// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

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

// when is nothing if something isn't so.
func when(is bool, format string, args ...any) phrase {
	if !is {
		return nil
	}
	return plainly(format, args...)
}

// present leaves out lines that say nothing.
func present(lines ...phrase) []phrase {
	return slices.DeleteFunc(lines, func(line phrase) bool { return len(line) == 0 })
}

func code(text string) phrase { return phrase{{text: text, code: true}} }

// each makes a phrase of each text, after a word.
func each(word string, texts []string) []phrase {
	var all []phrase
	for _, text := range texts {
		all = append(all, plainly("%s%s", word, text))
	}
	return all
}

// join puts pieces together.
func join(parts ...phrase) phrase { return slices.Concat(parts...) }

// telling is a review in words, from which all forms but JSON are written.
type telling struct {
	headline phrase
	summary  []phrase
	// blocks, the worst first.
	blocks []block
	notes  []phrase
}

// maxHeadline bounds how many consequences are in the first line.
const maxHeadline = 6

// tell puts a result in words.
func tell(r *review.Result) telling {
	t := telling{headline: plainly("Nothing changes"), summary: summary(r)}
	t.addBlocks(r)
	var worst []string
	for i, c := range r.Worst {
		if i == maxHeadline {
			worst = append(worst, fmt.Sprintf("%d more", len(r.Worst)-i))
			break
		}
		worst = append(worst, c.Text)
	}
	if len(worst) > 0 {
		t.headline = plainly("%s", strings.Join(worst, " · "))
	}
	if r.Cost != nil {
		t.notes = each("", r.Cost.Assumptions)
	}
	t.notes = append(t.notes, each("", r.Notes)...)
	return t
}

// summary says of what it is a review, and what it comes to.
func summary(r *review.Result) []phrase {
	if r.Failed {
		return nil
	}
	named := func(side review.Revision) phrase {
		if side.Pools == 0 && r.Verdict == review.Broken {
			return code(side.Name)
		}
		return join(code(side.Name), plainly(" (%s)", wording.Count(side.Pools, "pool")))
	}
	compared := join(plainly("Looked at alone: "), named(r.Head))
	if r.Comparable() {
		same := r.Summary.Same
		compared = join(plainly("Compared: "), named(r.Base), plainly(" with "), named(r.Head), when(same > 0, "; %s the same", wording.Count(same, "pool")))
	}
	if r.Verdict == review.Broken && r.Head.Pools == 0 { // nothing else was read
		return []phrase{compared}
	}
	return present(
		when(r.Verdict == review.Denied, "Denied: policies deny %s of the head", wording.Count(r.Summary.Denied, "pool")),
		when(r.Verdict == review.Allowed, "Allowed: no policy denies it"),
		compared, policyLine(r), costLine("Cost of all pools by month: ", r.Cost),
	)
}

// policyLine says which policies were asked; nil if there are none.
func policyLine(r *review.Result) phrase {
	asked, said := len(r.Head.Policies), "as before, "
	switch {
	case asked+len(r.Base.Policies) == 0:
		return nil
	case !r.Comparable():
		said = ""
	case r.Base.Digest != r.Head.Digest:
		said = "not those of the base, "
	}
	warnings := r.Summary.Warnings
	return join(plainly("Policies: %s asked, %sat %s (%s)", wording.Count(asked, "policy"), said, r.At.Format(rfc3339), r.Zone),
		when(warnings > 0, "; %s", wording.Count(warnings, "warning")))
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
	text := p.String()
	if p.Line > 0 && p.Column > 0 {
		text += ":" + strconv.Itoa(p.Column)
	}
	return text
}
