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
	for _, line := range append([]phrase{t.headline}, t.summary...) {
		fmt.Fprintln(&b, line.text())
	}
	for i := range t.blocks {
		t.blocks[i].writeText(&b)
	}
	if len(t.notes) > 0 {
		b.WriteString("\nTaken for granted, or not known:\n")
		for _, n := range t.notes {
			fmt.Fprintf(&b, "  %s\n", n.text())
		}
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("writing the review: %w", err)
	}
	return nil
}

func (b *block) writeText(to *bytes.Buffer) {
	fmt.Fprintf(to, "\n%s\n", b.heading(true).text())
	for _, line := range slices.Concat(b.body(), b.differences()) {
		fmt.Fprintf(to, "  %s\n", line.text())
	}
	for _, line := range b.diff {
		fmt.Fprintf(to, "    %s\n", wording.EscapeCommands(clean(line)))
	}
}

// text is a phrase as it is read on a terminal.
func (p phrase) text() string {
	var b strings.Builder
	for _, s := range p {
		b.WriteString(clean(s.text))
	}
	return b.String()
}

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
