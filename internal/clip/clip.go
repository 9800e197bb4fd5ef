// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package clip shortens texts to what their place holds, with dots for what is left out.
package clip

import (
	"strings"
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
