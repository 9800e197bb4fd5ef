// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/corral-dev/corral/internal/review"
	"github.com/corral-dev/corral/internal/wording"
)

// Bounds of a review in Markdown. GitHub takes comments of 65,536 characters.
const (
	// MaxMarkdown is the most that it takes, in bytes.
	MaxMarkdown = 60_000
	// notesShare is what the notes may take of it.
	notesShare = 8_000
	// maxLines bounds each list of a block, and maxLine a line, in characters.
	maxLines, maxLine = 40, 800
)

// ReviewMarkdown writes a review as a comment: it begins with the marker in an HTML comment, by which the comment is found
// again, and takes at most MaxMarkdown bytes: the least severe end is left out and counted. Nothing of it links, mentions or formats as
// whoever wrote the definitions pleases, but for a commit's hash, which GitHub links to that commit. The marker must not hold "--" or ">".
func ReviewMarkdown(w io.Writer, marker string, r *review.Result) error {
	t := tell(r)
	m := &markdown{}
	m.add("<!-- %s -->\n### %s\n\n", marker, marked(t.headline))
	m.lines(MaxMarkdown, len(t.summary), "- ", "line", t.summary, marked)
	notes := &markdown{}
	if len(t.notes) > 0 {
		notes.lines(notesShare, len(t.notes), "- ", "note", t.notes, marked)
		notes = folded("Taken for granted, or not known", notes.String())
	}
	room := MaxMarkdown - notes.Len() - 1000
	for i, b := range t.blocks {
		if m.addWithin(room, b.markdown()) {
			continue
		}
		b = &block{class: b.class, Kind: b.Kind, Names: b.Names, places: b.places, Path: b.Path, Said: b.Said}
		b.Lines = []string{"more than there is room for: `corral review` prints it"}
		if !m.addWithin(room, b.markdown()) {
			m.add("\nLeft out, as this comment has no room for more: %s. `corral review` prints all of it.\n", counted(t.blocks[i:]))
			break
		}
	}
	return write(w, "the review", m.String()+notes.String())
}

// counted counts what blocks tell of by their class.
func counted(blocks []*block) string {
	var parts []string
	for _, alike := range groups(blocks, func(b *block) string { return b.Label }) {
		n := 0
		for _, b := range alike {
			n += max(1, len(b.Names))
		}
		parts = append(parts, fmt.Sprintf("%d %s", n, alike[0].Label))
	}
	return strings.Join(parts, ", ")
}

// markdown is a text that grows.
type markdown struct{ strings.Builder }

func (m *markdown) add(format string, args ...any) { fmt.Fprintf(m, format, args...) }

// addWithin adds a text if there is room for it.
func (m *markdown) addWithin(room int, text string) bool {
	if m.Len()+len(text) > room {
		return false
	}
	m.WriteString(text)
	return true
}

// lines adds lines, each after a word, as long as there is room and there are no more than most. It counts the others.
func (m *markdown) lines(room, most int, word, kind string, lines []string, shown func(string) string) {
	for i, line := range lines {
		if i == most || !m.addWithin(room, word+shown(line)+"\n") {
			m.add("%sand %s\n", word, wording.Count(len(lines)-i, "more "+kind))
			return
		}
	}
}

// folded is a text that a reader unfolds.
func folded(title, text string) *markdown {
	m := &markdown{}
	m.add("\n<details><summary>%s</summary>\n\n%s\n</details>\n", title, text)
	return m
}

func (b *block) markdown() string {
	m, fields, diff := &markdown{}, &markdown{}, &markdown{}
	m.add("\n#### %s\n\n", marked(b.heading()))
	m.lines(MaxMarkdown, maxLines, "- ", "line", b.body(), marked)
	if n := len(b.fields); n > 0 { // a table is too wide for a phone
		fields.lines(MaxMarkdown, maxLines, "- ", "field", b.differences(), marked)
		m.WriteString(folded(wording.Count(n, "field"), fields.String()).String())
	}
	if len(b.diff) > 0 {
		diff.lines(MaxMarkdown/3, len(b.diff), "", "line", b.diff, func(line string) string { return wording.TruncateRunes(clean(line), maxLine) })
		fence := fenceOf(diff.String(), "```")
		m.WriteString(folded("diff", fence+"diff\n"+diff.String()+fence+"\n").String())
	}
	return m.String()
}

// marked is a line in Markdown, of at most maxLine characters.
func marked(line string) string {
	var b strings.Builder
	most := maxLine
	for i, part := range strings.Split(line, mark) {
		part = wording.TruncateRunes(clean(wording.Truncate(part, utf8.UTFMax*(max(most, 0)+1))), most)
		most -= utf8.RuneCountInString(part)
		switch {
		case part == "":
		case i%2 == 1:
			b.WriteString(codeSpan(part))
		default:
			b.WriteString(escapeMarkdown(part))
		}
	}
	return b.String()
}

// fenceOf is more backticks than are in a text, and not fewer than a fence.
func fenceOf(text, fence string) string {
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return fence
}

// codeSpan fences code with more backticks than are in it.
func codeSpan(text string) string {
	fence := fenceOf(text, "`")
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
