// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"fmt"
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
	var b bytes.Buffer
	for _, line := range append([]string{t.headline}, t.summary...) {
		fmt.Fprintln(&b, text(line))
	}
	for i := range t.blocks {
		t.blocks[i].writeText(&b)
	}
	if len(t.notes) > 0 {
		b.WriteString("\nTaken for granted, or not known:\n")
		for _, n := range t.notes {
			fmt.Fprintf(&b, "  %s\n", text(n))
		}
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("writing the review: %w", err)
	}
	return nil
}

func (b *block) writeText(to *bytes.Buffer) {
	fmt.Fprintf(to, "\n%s\n", text(b.heading(true)))
	for _, line := range slices.Concat(b.body(), b.differences()) {
		fmt.Fprintf(to, "  %s\n", text(line))
	}
	for _, line := range b.diff {
		fmt.Fprintf(to, "    %s\n", wording.EscapeCommands(clean(line)))
	}
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
