// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/corral-dev/corral/internal/review"
	"github.com/corral-dev/corral/internal/wording"
)

// mark stands around what is shown as it is written in files.
const mark = "\x00"

func code(text string) string {
	return mark + strings.ReplaceAll(text, mark, string(unicode.ReplacementChar)) + mark
}

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
func each(word string, texts []string) (all []string) {
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
	blocks []*block
	said   map[string]*block
	notes  []string
}

// maxHeadline bounds how many consequences are in the first line.
const maxHeadline = 6

// tell puts a result in words.
func tell(r *review.Result) telling {
	t := telling{summary: summary(r), said: map[string]*block{}}
	t.addBlocks(r)
	var worst []string
	for _, c := range r.Worst[:min(len(r.Worst), maxHeadline)] {
		worst = append(worst, c.Text)
	}
	more := len(r.Worst) - maxHeadline
	t.headline = cmp.Or(strings.Join(append(worst, present(when(more > 0, "%d more", more))...), " · "), "Nothing changes")
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

// arrow stands between values of the base and the head.
const arrow = " → "

// both tells a value of something on both sides; it is nil on a side that doesn't have it.
func both[T any](before, after *T, of func(*T) string) string {
	switch {
	case before == nil && after == nil:
		return ""
	case after == nil:
		return of(before) + arrow + "–"
	case before == nil || of(before) == of(after):
		return of(after)
	}
	return of(before) + arrow + of(after)
}

// ReviewText writes a review for a terminal, without colours or control characters.
func ReviewText(w io.Writer, r *review.Result) error {
	t := tell(r)
	lines := append([]string{t.headline}, t.summary...)
	for _, b := range t.blocks {
		lines = slices.Concat(lines, []string{"", b.heading(true)}, each("  ", b.body()), each("  ", b.differences()), each("    ", b.diff))
	}
	if len(t.notes) > 0 {
		lines = slices.Concat(lines, []string{"", "Taken for granted, or not known:"}, each("  ", t.notes))
	}
	var all strings.Builder
	for _, line := range lines {
		all.WriteString(text(line) + "\n")
	}
	return write(w, "the review", wording.EscapeCommands(all.String()))
}

// text is a line as it is read on a terminal.
func text(line string) string { return clean(strings.ReplaceAll(line, mark, "")) }

// clean makes one line of a text, without what would act on a terminal or turn the direction of reading: whoever writes
// definitions chooses words of a report.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r):
			return unicode.ReplacementChar
		}
		return r
	}, text)
}
