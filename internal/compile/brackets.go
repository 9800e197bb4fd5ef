// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"cuelang.org/go/cue/scanner"
	"cuelang.org/go/cue/token"
)

// closers maps opening brackets to the brackets that close them.
var closers = map[token.Token]token.Token{token.LBRACE: token.RBRACE, token.LBRACK: token.RBRACK, token.LPAREN: token.RPAREN}

// interpolation is the text that begins an interpolation in a string.
const interpolation = `\(`

// bracket is an opening bracket.
type bracket struct {
	text           string
	closer         token.Token
	offset, indent int
}

// brackets matches the brackets of a file. It stops at the first bracket without a counterpart, or at the first string that
// is not closed.
type brackets struct {
	scanner scanner.Scanner
	source  []byte
	open    []bracket
	// line is the line of the current token, indent the column of the first token in that line, and before the previous
	// token.
	line, indent int
	before       token.Token
	// closed is the last bracket that was closed. suspect is the first bracket that was closed in a less indented line.
	closed, suspect bracket
	// swallowing is the offset of the last string that matches swallows.
	swallowing int
	// offset and message describe the mistake. The message is empty if there is none.
	offset  int
	message string
}

// swallows matches a string such as "large, cache: ", which is not closed: the quote at its end probably begins the next
// string.
var swallows = regexp.MustCompile(`^"[^"]*[:,\[]\s*"$`)

// bracketMistake returns the offset and the message of a mistake with brackets or quotes that explains the parser's error in
// a line. The message is empty if there is no such mistake up to that line.
func bracketMistake(source []byte, line int) (offset int, message string) {
	b := &brackets{source: source}
	b.scanner.Init(token.NewFile("", -1, len(source)), source, b.reportString, 0)
	for b.message == "" {
		pos, tok, lit := b.scanner.Scan()
		at := pos.Position()
		if at.Line > line {
			return 0, ""
		}
		if tok == token.EOF {
			break
		}
		if at.Line > b.line {
			b.line, b.indent = at.Line, at.Column
		}
		b.visit(at.Offset, tok)
		if swallows.MatchString(lit) {
			b.swallowing = at.Offset
		}
	}
	n := len(b.open)
	if b.message == "" && n > 0 && line >= bytes.Count(source, []byte("\n")) {
		b.neverClosed(cmp.Or(b.suspect, b.open[n-1]))
	}
	return b.offset, b.message
}

// reportString reports a string that is not closed. In an interpolation, the unclosed string begins with the quote that
// closes the string around the interpolation, so the interpolation's closing bracket is missing.
func (b *brackets) reportString(pos token.Pos, message string, _ []any) {
	n := len(b.open)
	switch {
	case b.message != "" || !strings.HasPrefix(message, "string literal not terminated"):
	case n > 0 && b.open[n-1].text == interpolation:
		b.neverClosed(b.open[n-1])
	default:
		b.offset, b.message = pos.Offset(), "the string here is never closed: close each string with a double quote on the same line"
		if b.swallowing > 0 && bytes.IndexByte(b.source[b.swallowing:b.offset], '\n') < 0 {
			b.offset = b.swallowing
		}
	}
}

func (b *brackets) neverClosed(open bracket) {
	b.offset, b.message = open.offset, fmt.Sprintf("the %s here is never closed", open.text)
}

// visit opens or closes a bracket.
func (b *brackets) visit(offset int, tok token.Token) {
	n := len(b.open)
	switch {
	case closers[tok] != token.ILLEGAL && b.before == token.INTERPOLATION:
		b.open = append(b.open, bracket{interpolation, token.RPAREN, offset - 1, b.indent})
	case closers[tok] != token.ILLEGAL:
		b.open = append(b.open, bracket{tok.String(), closers[tok], offset, b.indent})
	case tok != token.RBRACE && tok != token.RBRACK && tok != token.RPAREN:
	case n == 0:
		b.offset, b.message = offset, fmt.Sprintf("this %s closes nothing: remove it", tok)
	case b.open[n-1].closer != tok:
		b.mismatch(offset, tok, b.open[n-1])
	default:
		b.closed, b.open = b.open[n-1], b.open[:n-1]
		if b.indent < b.closed.indent {
			b.suspect = cmp.Or(b.suspect, b.closed)
		}
		if b.closed.text == interpolation && strings.HasSuffix(b.scanner.ResumeInterpolation(), "(") {
			tok = token.INTERPOLATION // the next bracket opens another interpolation
		}
	}
	b.before = tok
}

// mismatch reports a bracket that closes another kind of bracket.
func (b *brackets) mismatch(offset int, tok token.Token, last bracket) {
	n := len(b.open)
	switch {
	case last.text == interpolation, b.indent < last.indent, n > 1 && b.open[n-2].closer == tok:
		b.neverClosed(last)
	case b.before == b.closed.closer:
		b.offset, b.message = b.closed.offset, fmt.Sprintf("the %s here is closed by %s%s: write [{ … }]", b.closed.text, b.before, tok)
	default:
		line, column := placeIn(b.source, last.offset)
		b.offset, b.message = offset, fmt.Sprintf("this %s closes the %s of %d:%d: write %s", tok, last.text, line, column, last.closer)
	}
}
