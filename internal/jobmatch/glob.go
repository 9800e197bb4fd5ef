// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobmatch

import (
	"slices"
	"strings"
)

// Glob reports whether text matches a pattern in which * stands for any characters but /.
func Glob(pattern, text string) bool { return glob(pattern, text, '/') }

// GlobAll is Glob with a * that stands for / too.
func GlobAll(pattern, text string) bool { return glob(pattern, text, -1) }

// AnyGlob reports whether a repository as OWNER/NAME matches one of the patterns, whatever its case; no pattern is for all.
func AnyGlob(patterns []string, repository string) bool {
	repository = strings.ToLower(repository)
	return len(patterns) == 0 || slices.ContainsFunc(patterns, func(p string) bool { return Glob(strings.ToLower(p), repository) })
}

// glob goes back to the last * only: as it can't pass a stop, what an earlier one took makes no difference to what follows.
// So it takes as many steps as the two are long, multiplied, at most.
func glob(pattern, text string, stop rune) bool {
	p, t, star, mark := 0, 0, -1, 0
	for t < len(text) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, mark = p, t
			p++
		case p < len(pattern) && pattern[p] == text[t]:
			p++
			t++
		case star >= 0 && rune(text[mark]) != stop:
			mark++
			p, t = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(pattern[p:], "*") == ""
}
