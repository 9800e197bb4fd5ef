// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/corral-dev/corral/internal/review"
	"github.com/corral-dev/corral/internal/wording"
)

// mark stands around what is shown as it is written in files. Where a text of theirs holds one, other parts of the line are shown so:
// each form makes either harmless.
const mark = "\x00"

func code(text string) string { return mark + text + mark }

// when is nothing if something isn't so.
func when(is bool, format string, args ...any) string {
	if !is {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// present leaves out lines that say nothing.
func present(lines ...string) []string {
	return slices.DeleteFunc(lines, func(line string) bool { return line == "" })
}

// each puts a word before each text.
func each(word string, texts []string) []string {
	var all []string
	for _, text := range texts {
		all = append(all, word+text)
	}
	return all
}

// telling is a review in words, from which all forms but JSON are written.
type telling struct {
	headline string
	summary  []string
	// blocks, the worst first.
	blocks []block
	notes  []string
}

// maxHeadline bounds how many consequences are in the first line.
const maxHeadline = 6

// tell puts a result in words.
func tell(r *review.Result) telling {
	t := telling{headline: "Nothing changes", summary: summary(r)}
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
		t.headline = strings.Join(worst, " · ")
	}
	t.notes = slices.Concat(cmp.Or(r.Cost, &review.Cost{}).Assumptions, r.Notes)
	return t
}

// summary says of what it is a review, and what it comes to.
func summary(r *review.Result) []string {
	if r.Failed {
		return nil
	}
	named := func(side review.Revision) string {
		if side.Pools == 0 && r.Verdict == review.Broken {
			return code(side.Name)
		}
		return fmt.Sprintf("%s (%s)", code(side.Name), wording.Count(side.Pools, "pool"))
	}
	compared := "Looked at alone: " + named(r.Head)
	if r.Comparable() {
		same := r.Summary.Same
		compared = "Compared: " + named(r.Base) + " with " + named(r.Head) + when(same > 0, "; %s the same", wording.Count(same, "pool"))
	}
	if r.Verdict == review.Broken && r.Head.Pools == 0 { // nothing else was read
		return []string{compared}
	}
	return present(
		when(r.Verdict == review.Denied, "Denied: policies deny %s of the head", wording.Count(r.Summary.Denied, "pool")),
		when(r.Verdict == review.Allowed, "Allowed: no policy denies it"),
		compared, policyLine(r), costLine("Cost of all pools by month: ", r.Cost),
	)
}

// policyLine says which policies were asked; nil if there are none.
func policyLine(r *review.Result) string {
	asked, said := len(r.Head.Policies), "as before, "
	switch {
	case asked+len(r.Base.Policies) == 0:
		return ""
	case !r.Comparable():
		said = ""
	case r.Base.Digest != r.Head.Digest:
		said = "not those of the base, "
	}
	warnings := r.Summary.Warnings
	return fmt.Sprintf("Policies: %s asked, %sat %s (%s)", wording.Count(asked, "policy"), said, r.At.Format(rfc3339), r.Zone) +
		when(warnings > 0, "; %s", wording.Count(warnings, "warning"))
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
