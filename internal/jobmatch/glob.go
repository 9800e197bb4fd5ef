// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobmatch

import (
	"slices"
	"strings"
)

// Patterns are compared with texts. A comparison with one pattern takes time in proportion to the lengths of the two, and no memory.
type Patterns struct {
	texts   []string
	crosses bool // a * stands for / too
}

// Compile returns patterns in which * stands for any characters but /.
func Compile(patterns []string) Patterns { return Patterns{texts: patterns} }

// CompileNames returns patterns in which * stands for any characters.
func CompileNames(patterns []string) Patterns { return Patterns{texts: patterns, crosses: true} }

// CompileRepositories returns patterns of OWNER/NAME for AnyRepository.
func CompileRepositories(patterns []string) Patterns {
	all := make([]string, len(patterns))
	for i, text := range patterns {
		all[i] = strings.ToLower(text)
	}
	return Compile(all)
}

// Any reports whether a text matches one of the patterns. No pattern is for all.
func (p Patterns) Any(text string) bool {
	match := Glob
	if p.crosses {
		match = matchPart
	}
	return len(p.texts) == 0 || slices.ContainsFunc(p.texts, func(pattern string) bool { return match(pattern, text) })
}

// AnyRepository is Any for a repository as OWNER/NAME, whatever its case.
func (p Patterns) AnyRepository(repository string) bool { return p.Any(strings.ToLower(repository)) }

// Glob reports whether text matches a pattern in which * stands for any characters but /.
func Glob(pattern, text string) bool {
	part, restOfPattern, isMore := strings.Cut(pattern, "/")
	field, restOfText, hasMore := strings.Cut(text, "/")
	return isMore == hasMore && matchPart(part, field) && (!isMore || Glob(restOfPattern, restOfText))
}

// cut is a variable so that a test can count the characters that are looked at.
var cut = strings.Cut

// matchPart looks for each text between two stars behind the one before. The first place is the best: it leaves the most for the texts
// that follow. So no character is looked at twice.
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
