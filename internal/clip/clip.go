// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package clip makes texts fit for their place: short enough, with dots for what is left out, and without what acts on a terminal.
package clip

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

const dots = "…"

// Bytes returns a text of at most so many bytes, 3 or more. No character is cut in two.
func Bytes(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(dots)], "") + dots
}

// Runes returns a text of at most so many characters; none if most is not above 0.
func Runes(text string, most int) string {
	switch {
	case utf8.RuneCountInString(text) <= most:
		return text
	case most <= 0:
		return ""
	}
	return string([]rune(text)[:most-1]) + dots
}

// Visible returns a text with those characters escaped, as \u001b, that act on a terminal or turn the direction of reading, but for the
// ones to keep.
func Visible(text, keep string) string {
	acts := func(r rune) bool {
		return (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) && !strings.ContainsRune(keep, r)
	}
	if strings.IndexFunc(text, acts) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if acts(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
