// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"bytes"
	"regexp"
	"strings"
)

// nameAndValue is the hint about the syntax of fields and defaults.
const nameAndValue = "write NAME: VALUE, and a default as NAME: *VALUE | TYPE"

// syntaxHint explains lines that match a pattern. If the pattern has a group, the group marks the text to change.
type syntaxHint struct {
	line *regexp.Regexp
	hint string
}

// otherLanguages explain lines that are not CUE, but that users of YAML, Helm or shells often write. explainSyntax tries
// them before it matches brackets, because the brackets and quotes of such lines have another meaning.
var otherLanguages = []syntaxHint{
	{regexp.MustCompile(`^\s*#(?:\s|$)|\s#\s|/\*`), "a comment begins with //"},
	{regexp.MustCompile(`\{\{`), `CUE is not a template language: replace {{ … }} by the name of a field, or by \(NAME) in a string`},
	{regexp.MustCompile(`\$\{`), `replace ${…} by the name of a field, or by \(NAME) in a string`},
	{regexp.MustCompile(`[“”‘’]`), `put strings in straight double quotes (")`},
	{regexp.MustCompile(`^---`), noSeparators},
	{regexp.MustCompile(`^\s*- `), "write a list as [A, B]"},
}

const noSeparators = "a CUE file has no separators: remove the line"

// syntaxHints explain lines that CUE cannot parse. explainSyntax uses the first hint whose pattern matches the line.
var syntaxHints = []syntaxHint{
	{regexp.MustCompile(`^package\s+\w*[^\w\s]`), "the name of a package has letters, digits and _ only"},
	{regexp.MustCompile(`^\s*import\b`), "put imports below the package clause, with their paths in double quotes"},
	{regexp.MustCompile(`^\s*(?:if|for)\b[^{]*:\s*`), "put the fields after if or for in braces"},
	{regexp.MustCompile(`^\s*\w+(?:\.\w+)+\s*:`), "write A: B: VALUE for a nested field"},
	{regexp.MustCompile(`(?:^|[{,\s])[A-Za-z_]\w*(?:-\w+)+\s*:`), "put names with a dash in double quotes"},
	{regexp.MustCompile(`(?:^|[{,\s])\d\w*[A-Za-z]\w*\s*:`), "put names that begin with a digit in double quotes"},
	{regexp.MustCompile(`\s\?\s.*:`), "CUE has no ? operator; write the field in if CONDITION {…}"},
	{regexp.MustCompile(`(?::|\w)\s*(=)\s`), nameAndValue},
	{regexp.MustCompile(`;`), "separate fields with commas"},
	{regexp.MustCompile(`:\s*(?:[,}]|$)`), "give each field a value"},
	{regexp.MustCompile(`[\w)]\s*\{\s*$`), "write & between a definition and {"},
	{regexp.MustCompile(`[{,]\s*\w+\s+[\w"]`), "put a colon between a name and its value"},
	{regexp.MustCompile(`"\s+\w+:`), "put a comma between fields of one line"},
	{regexp.MustCompile(`\w/\w`), "put strings in double quotes"},
}

// maxLine is the maximum length in bytes of a line that explainLine matches. A generated file may have all its text in one
// line.
const maxLine = 1000

// saysNothing matches messages of the parser that only say where it stopped.
var saysNothing = regexp.MustCompile(`^missing ','|^expected label or ':'`)

// explainSyntax explains an error of the parser with a hint about its line, or with a bracket or a quote that has no
// counterpart.
func explainSyntax(f finding, files Files) finding {
	text := files[f.at.Filename]
	lines := strings.Split(strings.ReplaceAll(string(text), "\r", ""), "\n")
	if f.at.Line < 1 || f.at.Line > len(lines) {
		return f
	}
	line := lines[f.at.Line-1]
	if explainLine(&f, line, otherLanguages) {
		return f
	}
	if offset, message := bracketMistake(text, f.at.Line); message != "" {
		f.message = message
		f.at.Line, f.at.Column = placeIn(text, offset)
		return f
	}
	if f.at.Line > 1 && f.at.Column == 1+len(line)-len(strings.TrimLeft(line, "\t ")) && strings.HasSuffix(lines[f.at.Line-2], ":") { // its value is missing
		f.at.Line--
		line = lines[f.at.Line-1]
		f.at.Column = len(line) + 1
	}
	explainLine(&f, line, syntaxHints)
	return f
}

// explainLine adds the first hint whose pattern matches the line to the finding. It reports whether a hint matches.
func explainLine(f *finding, line string, hints []syntaxHint) bool {
	if len(line) > maxLine {
		return false
	}
	for _, h := range hints {
		at := h.line.FindStringSubmatchIndex(line)
		if at == nil {
			continue
		}
		if saysNothing.MatchString(f.message) {
			f.message = ""
		}
		f.message = strings.TrimPrefix(f.message+"; "+h.hint, "; ")
		if len(at) > 2 {
			f.at.Column = at[2] + 1
		}
		return true
	}
	return false
}

// placeIn returns the line and column of an offset.
func placeIn(text []byte, offset int) (line, column int) {
	return 1 + bytes.Count(text[:offset], []byte("\n")), offset - bytes.LastIndexByte(text[:offset], '\n')
}
