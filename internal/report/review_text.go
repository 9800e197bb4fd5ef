// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/corral-dev/corral/internal/review"
)

// ReviewText writes a review for a terminal, without colours or control characters.
func ReviewText(w io.Writer, r *review.Result) error {
	t := tell(r)
	var b bytes.Buffer
	fmt.Fprintln(&b, t.headline.text())
	for _, line := range t.summary {
		fmt.Fprintln(&b, line.text())
	}
	if t.overview != nil {
		b.WriteString("\n")
		t.overview.writeText(&b)
	}
	for _, s := range t.sections {
		b.WriteString("\n")
		s.writeText(&b)
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

func (t *table) writeText(b *bytes.Buffer) {
	w := tabwriter.NewWriter(b, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, strings.ToUpper(strings.Join(t.head, "\t")))
	for _, row := range t.rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = cell.text()
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	w.Flush() //nolint:errcheck // a buffer takes it
}

func (s *section) writeText(b *bytes.Buffer) {
	fmt.Fprintln(b, s.heading.text())
	for _, line := range s.lines {
		fmt.Fprintf(b, "  %s\n", line.text())
	}
	if s.more > 0 {
		fmt.Fprintf(b, "  and %d more\n", s.more)
	}
	if s.fields != nil {
		for _, row := range s.fields.rows {
			fmt.Fprintf(b, "  %s: %s → %s  (%s)\n", row[0].text(), row[1].text(), row[2].text(), row[3].text())
		}
	}
	if s.folded != nil {
		fmt.Fprintf(b, "  %s:\n", s.folded.heading)
		for _, line := range s.folded.lines {
			fmt.Fprintf(b, "    %s\n", clean(line))
		}
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
