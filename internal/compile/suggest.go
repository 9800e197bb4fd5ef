// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
)

// maxListed is how many allowed fields are listed when none resembles the one given.
const maxListed = 12

// explainUnknown finds the first label on the finding's path that the schema doesn't
// know, and says what to write in its place: the allowed field that resembles it, or
// all if they are few.
func (p *pkg) explainUnknown(f finding) finding {
	f.message = "field not allowed"
	object, kind := p.enclosingObject(f.path)
	if kind == "" {
		return f
	}
	v := p.definitions.LookupPath(cue.MakePath(cue.Def(kind)))
	for i, label := range f.path[object:] {
		next := descend(v, label)
		if !next.Exists() {
			f.path = f.path[:object+i+1]
			f.message += suggestion(label, fieldNames(v))
			return f
		}
		v = next
	}
	return f
}

func suggestion(given string, allowed []string) string {
	best, distance := "", len(given)/3+2
	for _, name := range allowed {
		if d := editDistance(strings.ToLower(given), strings.ToLower(name)); d < distance {
			best, distance = name, d
		}
	}
	switch {
	case best != "":
		return "; did you mean " + best + "?"
	case len(allowed) > 0 && len(allowed) <= maxListed:
		return "; allowed here: " + strings.Join(allowed, ", ")
	}
	return ""
}

// fieldNames returns the names of v's fields, also the optional ones, sorted.
func fieldNames(v cue.Value) []string {
	fields, err := v.Fields(cue.Optional(true))
	if err != nil {
		return nil
	}
	var names []string
	for fields.Next() {
		if fields.Selector().LabelType() == cue.StringLabel {
			names = append(names, fields.Selector().Unquoted())
		}
	}
	slices.Sort(names)
	return names
}

// enclosingObject returns how many labels of path lead to an object, and its kind.
func (p *pkg) enclosingObject(path []string) (int, string) {
	v := p.value
	for i := 0; ; i++ {
		kind, err := v.LookupPath(cue.MakePath(cue.Str("kind"))).String()
		if _, ok := kindOrder[kind]; err == nil && ok {
			return i, kind
		}
		if i == len(path) {
			return 0, ""
		}
		v = descend(v, path[i])
	}
}

// descend looks up a field, required, optional or plain, or a list's element.
func descend(v cue.Value, label string) cue.Value {
	if n, err := strconv.Atoi(label); err == nil {
		if element := v.LookupPath(cue.MakePath(cue.Index(n))); element.Exists() {
			return element
		}
		if element := v.LookupPath(cue.MakePath(cue.AnyIndex)); element.Exists() {
			return element
		}
	}
	if field := v.LookupPath(cue.MakePath(cue.Str(label))); field.Exists() {
		return field
	}
	if field := v.LookupPath(cue.MakePath(cue.Str(label).Optional())); field.Exists() {
		return field
	}
	if field := v.LookupPath(cue.MakePath(cue.Str(label).Required())); field.Exists() {
		return field
	}
	return v.LookupPath(cue.MakePath(cue.AnyString))
}

// editDistance is the least number of insertions, deletions and replacements of bytes
// that turn a into b (Levenshtein).
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
