// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobmatch

import (
	"slices"
	"strings"
)

// Patterns is a list of patterns, in which * is a wildcard. Matching a text with one pattern takes linear time and
// allocates no memory.
type Patterns struct {
	texts   []string
	crosses bool // * also matches /
}

// Compile returns patterns in which * matches any characters but /.
func Compile(patterns []string) Patterns { return Patterns{texts: patterns} }

// CompileNames returns patterns in which * matches any characters.
func CompileNames(patterns []string) Patterns { return Patterns{texts: patterns, crosses: true} }

// CompileRepositories returns patterns of OWNER/NAME for AnyRepository.
func CompileRepositories(patterns []string) Patterns {
	all := make([]string, len(patterns))
	for i, text := range patterns {
		all[i] = strings.ToLower(text)
	}
	return Compile(all)
}

// Any reports whether a text matches one of the patterns. An empty list matches everything.
func (p Patterns) Any(text string) bool {
	match := Glob
	if p.crosses {
		match = matchPart
	}
	return len(p.texts) == 0 || slices.ContainsFunc(p.texts, func(pattern string) bool { return match(pattern, text) })
}

// AnyRepository reports whether a repository, OWNER/NAME, matches one of the patterns, ignoring case. An empty list
// matches everything. The patterns must come from CompileRepositories.
func (p Patterns) AnyRepository(repository string) bool { return p.Any(strings.ToLower(repository)) }

// Glob reports whether text matches a pattern in which * matches any characters but /.
func Glob(pattern, text string) bool {
	part, restOfPattern, isMore := strings.Cut(pattern, "/")
	field, restOfText, hasMore := strings.Cut(text, "/")
	return isMore == hasMore && matchPart(part, field) && (!isMore || Glob(restOfPattern, restOfText))
}

// cut is a variable so that a test can count the visited characters.
var cut = strings.Cut

// matchPart reports whether text matches a pattern in which * matches any characters. It searches for each literal part
// of the pattern after the match of the previous part. The first match is always the right one, because it leaves the
// most text for the following parts. So no character is visited twice.
func matchPart(pattern, text string) bool {
	wanted, pattern, isMore := cut(pattern, "*")
	text, ok := strings.CutPrefix(text, wanted)
	if !isMore {
		return ok && text == ""
	}
	for ok {
		wanted, pattern, isMore = cut(pattern, "*")
		if !isMore {
			return strings.HasSuffix(text, wanted)
		}
		_, text, ok = cut(text, wanted)
	}
	return false
}
