// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/corral-dev/corral/internal/review"
	"github.com/corral-dev/corral/internal/wording"
)

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
