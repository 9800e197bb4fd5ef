// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	_ "embed" // the sentences
	"fmt"
	"io"
	"slices"
	"strings"
	"text/template"
	"time"
	"unicode"

	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/review"
	"github.com/corral-dev/corral/internal/wording"
)

// mark encloses text that is quoted from files. Markdown shows such text as code, and the other formats remove the marks.
// The character must be printable, because templates replace unprintable characters.
const mark = "\uFFFC"

func code(text string) string {
	return mark + clean(strings.ReplaceAll(text, mark, string(unicode.ReplacementChar))) + mark
}

//go:embed review.tmpl
var sentences string

// words renders the sentences of a review.
var words = &wording.Book{Source: sentences, Functions: template.FuncMap{
	"code": code, "both": both, "listed": listed, "leftOut": leftOut, "readable": readable, "key": keyOf, "placeOf": placeOf, "agreeing": review.Agreeing,
	"format": compile.Format, "money": review.Money,
	"beyond": func(n, most int) int { return max(0, n-most) },
	"lower":  func(c review.Change) string { return strings.ToLower(string(c)) },
	"noun":   func(n int, noun string) string { return strings.TrimLeft(wording.Count(n, noun), "0123456789 ") },
	"stamp":  func(t time.Time) string { return t.Format(time.RFC3339) },
}}

// when returns the formatted text if the condition holds, and an empty text otherwise.
func when(condition bool, format string, args ...any) string {
	if !condition {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// each returns the texts, each with a prefix.
func each(word string, texts []string) (all []string) {
	for _, text := range texts {
		all = append(all, word+text)
	}
	return all
}

// renderedReview is a review in sentences, from which all formats except JSON and YAML are written.
type renderedReview struct {
	headline string
	summary  []string
	// blocks has the most severe block first.
	blocks      []*block
	byStatement map[string]*block
	notes       []string
}

// renderReview renders a result as sentences.
func renderReview(r *review.Result) renderedReview {
	t := renderedReview{
		headline: words.Phrase("headline", r), summary: words.Sentences("summary", r), byStatement: map[string]*block{},
		notes: slices.Concat(cmp.Or(r.Cost, &review.Cost{}).Assumptions, r.Notes),
	}
	t.addBlocks(r)
	return t
}

// arrow separates the values of the base and the head.
const arrow = " → "

// both returns the values of the base and of the head, with an arrow between them, or only the head's value if they are
// equal or the base has none. An empty value means that a side has none.
func both(before, after string) string {
	if before == "" || before == after {
		return after
	}
	return before + arrow + cmp.Or(after, "–")
}

// ReviewText writes a review for a terminal, without colors or control characters.
func ReviewText(w io.Writer, r *review.Result) error {
	t := renderReview(r)
	lines := append([]string{t.headline}, t.summary...)
	for _, b := range t.blocks {
		fields := append(b.differences(), rest(b.more, "field")...)
		lines = slices.Concat(lines, []string{"", b.heading()}, each("  ", b.body()), each("  ", fields), each("    ", b.diff))
	}
	if len(t.notes) > 0 {
		lines = slices.Concat(lines, []string{"", "Assumptions and unknowns:"}, each("  ", t.notes))
	}
	var all strings.Builder
	for _, line := range lines {
		all.WriteString(text(line) + "\n")
	}
	return write(w, "the review", wording.EscapeCommands(all.String()))
}

// text returns a line for a terminal, without marks.
func text(line string) string { return clean(strings.ReplaceAll(line, mark, "")) }

// clean returns a text on one line. It replaces control characters and characters that change the text direction, because
// the authors of definitions choose parts of the text.
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
