// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"
)

// nameAndValue explains fields and defaults.
const nameAndValue = "write NAME: VALUE, and a default as NAME: *VALUE | TYPE"

// syntaxHints explain lines that CUE cannot parse, and that users of YAML, Helm or shells often write. The first hint whose
// pattern matches the line counts.
var syntaxHints = []struct {
	line *regexp.Regexp
	hint string
}{
	{regexp.MustCompile(`^\s*#(\s|$)|\s#\s|/\*`), "a comment begins with //"},
	{regexp.MustCompile(`\{\{`), `CUE is not a template language: replace {{ … }} by the name of a field, or by \(NAME) in a string`},
	{regexp.MustCompile(`\$\{`), `replace ${…} by the name of a field, or by \(NAME) in a string`},
	{regexp.MustCompile(`[“”‘’]`), `put strings in straight double quotes (")`},
	{regexp.MustCompile(`^---`), "a CUE file has no separators; remove the line"},
	{regexp.MustCompile(`^\s*- `), "write a list as [A, B]"},
	{regexp.MustCompile(`^package\s+\w*[^\w\s]`), "the name of a package has letters, digits and _ only"},
	{regexp.MustCompile(`^\s*import\b`), "put imports below the package clause, with their paths in double quotes"},
	{regexp.MustCompile(`^\s*(if|for)\b[^{]*:\s*`), "put the fields after if or for in braces"},
	{regexp.MustCompile(`^\s*\w+(\.\w+)+\s*:`), "write A: B: VALUE for a nested field"},
	{regexp.MustCompile(`(^|[{,\s])[A-Za-z_]\w*(-\w+)+\s*:`), "put names with a dash in double quotes"},
	{regexp.MustCompile(`(^|[{,\s])\d\w*[A-Za-z]\w*\s*:`), "put names that begin with a digit in double quotes"},
	{regexp.MustCompile(`\s\?\s.*:`), "CUE has no ? operator; write the field in if CONDITION {…}"},
	{regexp.MustCompile(`(:|\w)\s*=\s`), nameAndValue},
	{regexp.MustCompile(`;`), "separate fields with commas"},
	{regexp.MustCompile(`:\s*([,}]|$)`), "give each field a value"},
	{regexp.MustCompile(`^[^"]*("[^"]*"[^"]*)*"[^"]*$`), "close each string with a double quote on the same line"},
	{regexp.MustCompile(`[\w)]\s*\{\s*$`), "write & between a definition and {"},
	{regexp.MustCompile(`[{,]\s*\w+\s+[\w"]`), "put a colon between a name and its value"},
	{regexp.MustCompile(`"\s+\w+:`), "put a comma between fields of one line"},
	{regexp.MustCompile(`\w/\w`), "put strings in double quotes"},
}

// maxLine is the maximum length of a line to explain. A generated file may have all its text in one line.
const maxLine = 1000

// explainSyntax explains an error of the parser by the line that it is about, or by the bracket that is not closed.
func explainSyntax(f finding, files Files) finding {
	text := files[f.at.Filename]
	lines := strings.Split(strings.ReplaceAll(string(text), "\r", ""), "\n")
	if f.at.Line < 1 || f.at.Line > len(lines) {
		return f
	}
	if opened := unclosed(text); opened >= 0 && f.at.Line >= len(lines)-1 {
		f.at.Line, f.at.Column = placeIn(text, opened)
		f.message = fmt.Sprintf("the %c here is never closed", text[opened])
		return f
	}
	line := lines[f.at.Line-1]
	if f.at.Line > 1 && f.at.Column == 1+len(line)-len(strings.TrimLeft(line, "\t ")) && strings.HasSuffix(lines[f.at.Line-2], ":") { // a value is missing there
		f.at.Line--
		line = lines[f.at.Line-1]
		f.at.Column = len(line) + 1
	}
	for _, h := range syntaxHints {
		if len(line) <= maxLine && h.line.MatchString(line) {
			f.message += "; " + h.hint
			return f
		}
	}
	return f
}

// placeIn returns the line and column of an offset.
func placeIn(text []byte, offset int) (line, column int) {
	return 1 + bytes.Count(text[:offset], []byte("\n")), offset - bytes.LastIndexByte(text[:offset], '\n')
}

// withoutBrackets matches strings and comments, whose brackets do not count.
var withoutBrackets = regexp.MustCompile(`(?s)"""\r?\n.*?"""|'''\r?\n.*?'''|#"[^"\n]*"#|"(\\.|[^"\\\n])*"|'(\\.|[^'\\\n])*'|//[^\n]*`)

// bracket is an open bracket, and the indentation of its line.
type bracket struct{ offset, indent int }

// unclosed returns the offset of the bracket that is probably not closed, or -1: the innermost bracket that a less indented
// line closes, or else the last one that is open at the end.
func unclosed(text []byte) int {
	text = withoutBrackets.ReplaceAllFunc(text, func(found []byte) []byte { return bytes.Repeat([]byte("."), len(found)) })
	open := []bracket{{offset: -1}}
	offset := 0
	for line := range bytes.Lines(text) {
		indent := len(line) - len(bytes.TrimLeft(line, "\t "))
		for _, char := range line {
			last := open[len(open)-1]
			switch {
			case bytes.IndexByte([]byte("{[("), char) >= 0:
				open = append(open, bracket{offset, indent})
			case bytes.IndexByte([]byte("}])"), char) < 0:
			case indent < last.indent || last.offset < 0:
				return last.offset
			default:
				open = open[:len(open)-1]
			}
			offset++
		}
	}
	return open[len(open)-1].offset
}
