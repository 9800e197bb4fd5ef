// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/corral-dev/corral/internal/clip"
	"github.com/corral-dev/corral/internal/review"
)

// Bounds of a review in Markdown. GitHub takes comments of 65,536 characters.
const (
	// MaxMarkdown is the most that it takes, in bytes.
	MaxMarkdown = 60_000
	// overviewShare is what the overview may take of it, and notesShare the notes.
	overviewShare, notesShare = 20_000, 8_000
	// minSection is room for less than a section.
	minSection = 100
	// maxRows and maxLines bound one section.
	maxRows, maxLines = 40, 60
	// maxLine and maxValue bound a line and a value, in characters.
	maxLine, maxValue = 800, 200
)

// ReviewMarkdown writes a review as a comment: it begins with the marker in an HTML comment, by which the comment is found
// again, and takes at most MaxMarkdown bytes. What is left out is counted. Nothing of it links, mentions or formats as
// whoever wrote the definitions pleases, but for a commit's hash, which GitHub links to that commit. The marker must not hold "--" or ">".
func ReviewMarkdown(w io.Writer, marker string, r *review.Result) error {
	t := tell(r)
	m := &markdown{}
	m.add("<!-- %s -->\n## Corral review\n\n**%s**\n\n", marker, t.headline.markdown(maxLine))
	for _, line := range t.summary {
		m.add("- %s\n", line.markdown(maxLine))
	}
	if t.overview != nil {
		m.add("\n%s", t.overview.markdown(overviewShare, len(t.overview.rows)))
	}
	notes := notesMarkdown(t.notes)
	left, room := 0, MaxMarkdown-len(notes)-200
	for _, s := range t.sections {
		if m.Len() > room-minSection || !m.addWithin(room, "\n"+s.markdown(), "\n"+s.brief()) {
			left++
		}
	}
	if left > 0 {
		m.add("\n%s left out: this comment has no room for more. `corral review` prints all of it.\n", Count(left, "part"))
	}
	m.add("%s", notes)
	if _, err := io.WriteString(w, m.String()); err != nil {
		return fmt.Errorf("writing the review: %w", err)
	}
	return nil
}

// markdown is a text that grows.
type markdown struct{ strings.Builder }

func (m *markdown) add(format string, args ...any) { fmt.Fprintf(m, format, args...) }

// addWithin adds the first of the texts that there is room for.
func (m *markdown) addWithin(room int, texts ...string) bool {
	for _, text := range texts {
		if m.Len()+len(text) <= room {
			m.WriteString(text)
			return true
		}
	}
	return false
}

func notesMarkdown(notes []phrase) string {
	if len(notes) == 0 {
		return ""
	}
	m := &markdown{}
	m.add("\n<details><summary>Taken for granted, or not known</summary>\n\n")
	for i, n := range notes {
		if !m.addWithin(notesShare, "- "+n.markdown(maxLine)+"\n") {
			m.add("- and %s\n", Count(len(notes)-i, "more note"))
			break
		}
	}
	m.add("\n</details>\n")
	return m.String()
}

// markdown writes a table of as many rows as there is room for, at most some.
func (t *table) markdown(room, most int) string {
	m := &markdown{}
	m.add("| %s |\n|%s\n", strings.Join(t.head, " | "), strings.Repeat("---|", len(t.head)))
	for i, row := range t.rows {
		cells := make([]string, len(row))
		for j, cell := range row {
			cells[j] = strings.ReplaceAll(cell.markdown(maxValue), "|", `\|`)
		}
		if i >= most || !m.addWithin(room, "| "+strings.Join(cells, " | ")+" |\n") {
			m.add("\nand %d more\n", len(t.rows)-i)
			break
		}
	}
	return m.String()
}

func (s *section) markdown() string {
	m := &markdown{}
	m.add("### %s\n\n", s.heading.markdown(maxLine))
	for _, line := range s.lines[:min(len(s.lines), maxLines)] {
		m.add("- %s\n", line.markdown(maxLine))
	}
	if more := max(0, len(s.lines)-maxLines) + s.more; more > 0 {
		m.add("- and %d more\n", more)
	}
	if s.fields != nil {
		m.add("\n<details><summary>%s</summary>\n\n%s\n</details>\n", Count(len(s.fields.rows), "field"), s.fields.markdown(MaxMarkdown, maxRows))
	}
	if s.folded != nil {
		m.add("\n<details><summary>%s</summary>\n\n", s.folded.heading)
		for i, line := range s.folded.lines {
			if i == maxLines {
				m.add("    and %d more\n", len(s.folded.lines)-i)
				break
			}
			m.add("    %s\n", clip.Runes(clean(line), maxLine))
		}
		m.add("\n</details>\n")
	}
	return m.String()
}

// brief is a section of which there is no room for more than its heading and what comes first.
func (s *section) brief() string {
	m := &markdown{}
	m.add("### %s\n\n", s.heading.markdown(maxValue))
	if len(s.lines) > 0 {
		m.add("- %s\n", s.lines[0].markdown(maxValue))
	}
	rest := max(0, len(s.lines)-1) + s.more
	if s.fields != nil {
		rest += len(s.fields.rows)
	}
	if s.folded != nil {
		rest += len(s.folded.lines)
	}
	if rest > 0 {
		m.add("- %s left out\n", Count(rest, "line"))
	}
	return m.String()
}

// markdown writes a phrase of at most so many characters.
func (p phrase) markdown(most int) string {
	var b strings.Builder
	for _, s := range p {
		text := clip.Runes(clean(begin(s.text, most)), most)
		most -= len([]rune(text))
		switch {
		case text == "":
		case s.code:
			b.WriteString(codeSpan(text))
		default:
			b.WriteString(escapeMarkdown(text))
		}
	}
	return b.String()
}

// begin cuts a text to somewhat more than so many characters, whatever its size.
func begin(text string, most int) string {
	end := utf8.UTFMax * (max(most, 0) + 1)
	if len(text) <= end {
		return text
	}
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

// codeSpan fences code with more backticks than are in it.
func codeSpan(text string) string {
	fence := "`"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	if strings.HasPrefix(text, "`") || strings.HasSuffix(text, "`") || strings.Trim(text, " ") == "" {
		text = " " + text + " "
	}
	return fence + text + fence
}

var markdownEscapes = strings.NewReplacer(
	`\`, `\\`, "`", "\\`", "*", `\*`, "_", `\_`, "[", `\[`, "]", `\]`, "~", `\~`, "$", `\$`, "!", `\!`,
	"&", "&amp;", "<", "&lt;", ">", "&gt;",
	// An invisible space keeps it from being a mention or a link: GitHub looks for these after Markdown has been read.
	"@", "@\u200b", "#", "\\#\u200b", "://", ":\u200b//", "www.", "www\u200b.",
)

// issueLink is GH-42, another way to name an issue.
var issueLink = regexp.MustCompile(`(?i)(GH-)(\d)`)

// escapeMarkdown makes a text read as it is.
func escapeMarkdown(text string) string {
	return issueLink.ReplaceAllString(markdownEscapes.Replace(text), "${1}\u200b${2}")
}
