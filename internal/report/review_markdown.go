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

// Limits of a review in Markdown. GitHub accepts comments of up to 65,536 characters.
const (
	// MaxMarkdown is the maximum size in bytes.
	MaxMarkdown = 60_000
	// notesShare is how many of these bytes the notes may use.
	notesShare = 8_000
	// maxLines limits the number of lines in each list of a block, and maxLine the length of a line in characters.
	maxLines, maxLine = 40, 800
)

// ReviewMarkdown writes a review as a comment of at most MaxMarkdown bytes. The comment begins with the marker in an HTML
// comment, so that a later review can find the comment and replace it. If there is not enough room, ReviewMarkdown leaves out
// the least severe blocks, and writes how many there are of each class. It escapes all text, so that the authors of
// definitions cannot add links, mentions or formatting. Only commit hashes are not escaped: GitHub links them to the commit.
// The marker must not contain "--" or ">".
func ReviewMarkdown(w io.Writer, marker string, r *review.Result) error {
	t := renderReview(r)
	text := fmt.Sprintf("<!-- %s -->\n### %s\n\n", marker, marked(t.headline)) + list(MaxMarkdown, len(t.summary), "- ", "line", t.summary, 0, marked)
	notes := ""
	if len(t.notes) > 0 {
		notes = folded("Assumptions and unknowns", list(notesShare, len(t.notes), "- ", "note", t.notes, 0, marked))
	}
	room := MaxMarkdown - len(notes) - 1000
	for i, b := range t.blocks {
		part := b.markdown()
		if len(text)+len(part) > room {
			brief := &block{class: b.class, Kind: b.Kind, Names: b.Names, places: b.places, Path: b.Path, Statement: b.Statement}
			brief.Lines = []string{"too long for this comment: `corral review` prints it"}
			part = brief.markdown()
		}
		if len(text)+len(part) > room {
			text += fmt.Sprintf("\nLeft out because this comment has no room: %s. `corral review` prints everything.\n", counted(t.blocks[i:]))
			break
		}
		text += part
	}
	return write(w, "the review", text+notes)
}

// counted returns the number of subjects in the given blocks, by class.
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

// list returns the lines, each with the prefix word, until there are most lines or the room in bytes is used up. It then
// adds a line with the number of the remaining lines. more is the number of further lines that the caller does not have.
func list(room, most int, word, kind string, lines []string, more int, shown func(string) string) string {
	var b strings.Builder
	for i, line := range lines {
		line = word + shown(line) + "\n"
		if i == most || b.Len()+len(line) > room {
			more += len(lines) - i
			break
		}
		b.WriteString(line)
	}
	for _, line := range rest(more, kind) {
		b.WriteString(word + line + "\n")
	}
	return b.String()
}

// rest returns the last line of a list from which entries are missing; none if no entry is missing.
func rest(missing int, kind string) []string {
	if missing == 0 {
		return nil
	}
	return []string{"and " + wording.Count(missing, "more "+kind)}
}

// folded returns a text in a collapsed section.
func folded(title, text string) string {
	return fmt.Sprintf("\n<details><summary>%s</summary>\n\n%s\n</details>\n", title, text)
}

func (b *block) markdown() string {
	text := "\n#### " + marked(b.heading()) + "\n\n" + list(MaxMarkdown, maxLines, "- ", "line", b.body(), 0, marked)
	if n := b.count(); n > 0 { // a list, because a table is too wide for a phone
		text += folded(wording.Count(n, "field"), list(MaxMarkdown, maxLines, "- ", "field", b.differences(), b.more, marked))
	}
	if len(b.diff) > 0 {
		diff := list(MaxMarkdown/3, len(b.diff), "", "line", b.diff, 0, func(line string) string { return wording.TruncateRunes(clean(line), maxLine) })
		fence := fenceOf(diff, "```")
		text += folded("diff", fence+"diff\n"+diff+fence+"\n")
	}
	return text
}

// marked converts a line to Markdown: marked text becomes code, and other text is escaped. It shortens the line to at most
// maxLine characters before it escapes them.
func marked(line string) string {
	var b strings.Builder
	most := maxLine
	for i, part := range strings.Split(line, mark) {
		part = wording.TruncateRunes(clean(wording.Truncate(part, utf8.UTFMax*(max(most, 0)+1))), most)
		most -= utf8.RuneCountInString(part)
		if i%2 == 1 && part != "" {
			b.WriteString(codeSpan(part))
		} else {
			b.WriteString(escapeMarkdown(part))
		}
	}
	return b.String()
}

// fenceOf returns a sequence of backticks that is at least as long as fence and does not occur in the text.
func fenceOf(text, fence string) string {
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return fence
}

// codeSpan returns a code span, delimited by more backticks than the code contains.
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
	// A zero-width space prevents a mention or a link, which GitHub detects after it has parsed the Markdown.
	"@", "@\u200b", "#", "\\#\u200b", "://", ":\u200b//", "www.", "www\u200b.",
)

// issueLink matches references to issues such as GH-42.
var issueLink = regexp.MustCompile(`(?i)(GH-)(\d)`)

// escapeMarkdown escapes a text so that GitHub shows it literally.
func escapeMarkdown(text string) string {
	return issueLink.ReplaceAllString(markdownEscapes.Replace(text), "${1}\u200b${2}")
}
