// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/token"

	"github.com/corral-dev/corral/internal/wording"
)

// explainUnknown finds the first label on the finding's path that the schema does not know. It suggests the allowed
// field with the most similar name, or lists all allowed fields if there are few.
func (p *pkg) explainUnknown(f finding) finding {
	f.message = "field not allowed"
	if parent := p.indentedBelow(f.path); parent != "" {
		f.message = "indentation has no meaning in CUE: put the fields of " + parent + " in { }"
		return f
	}
	object, kind := p.enclosingObject(f.path)
	last := f.path[len(f.path)-1]
	if kind == "" && slices.Contains([]string{"apiVersion", "kind"}, last) {
		f.path, f.positions, f.message = f.path[:len(f.path)-1], nil, ofClosedDefinition
		return f
	}
	if kind == "" {
		own := fieldNames(p.valueAt(f.path[:len(f.path)-1]))
		names := own
		if len(own) == 0 {
			names = p.written().labels()
		}
		f.message += cmp.Or(didYouMean(last, names), wording.Suggestion(last, own))
		return f
	}
	v, patterned := p.definitions.LookupPath(cue.MakePath(cue.Def(kind))), false
	for i, label := range f.path[object:] {
		next, isNamed := descend(v, label), slices.Contains(fieldNames(v), label)
		isLast := object+i+1 == len(f.path) // an open v has any label, but CUE refused this one
		patterned = patterned || !isNamed
		if !next.Exists() || isLast && !isNamed {
			f.path = f.path[:object+i+1]
			f.message += cmp.Or(wording.FieldHint(joinPath(f.path[object:])), wording.Suggestion(label, fieldNames(v)))
			return f
		}
		v = next
	}
	if patterned {
		return f
	}
	f.path, f.positions = f.path[:object], nil
	f.message = ofClosedDefinition
	return f
}

// ofClosedDefinition is the message for an object whose own definition allows less than the schema adds.
const ofClosedDefinition = "a definition of yours allows only its own fields here; begin it with `schema.#RunnerPool &`, or its name with _ instead of #"

// didYouMean suggests the most similar name, if there is one.
func didYouMean(given string, names []string) string {
	return wording.DidYouMean(closest(given, names))
}

// closest returns the most similar name, or "".
func closest(given string, names []string) string {
	return wording.Closest(given, names, len(given)/3+1)
}

// explainUndefined suggests what an undefined reference may have meant: a table row that is looked up by a field of
// this object's row, or another name in the user's files.
func (p *pkg) explainUndefined(f finding) finding {
	if l, ok := p.lookupOf(f); ok {
		if l.value == nil {
			f.at, f.message = l.row.Pos().Position(), l.key+" must be set: "+l.table+" is looked up by it"
			return f
		}
		if given, rows, ok := p.given(l); ok && rows.children[given] == nil {
			f.at = l.value.Pos().Position()
			f.message = fmt.Sprintf("%s has no %s", l.table, given) + wording.Suggestion(given, slices.Sorted(maps.Keys(rows.children)))
			return f
		}
	}
	if len(f.args) > 0 {
		f.message += didYouMeanMember(fmt.Sprint(f.args[0]), p.written().labels())
	}
	return f
}

// didYouMeanMember suggests the definition of the same name, or the most similar name of the same sort.
func didYouMeanMember(given string, names []string) string {
	if definition := "#" + given; slices.Contains(names, definition) {
		return wording.DidYouMean(definition)
	}
	return didYouMean(given, slices.DeleteFunc(slices.Clone(names), func(name string) bool { return isBlock(name) != isBlock(given) }))
}

// blockOf suggests the definition or the hidden field of a name, if there is one.
func blockOf(given string, names []string) string {
	for _, block := range []string{"#" + given, "_" + given} {
		if slices.Contains(names, block) {
			return wording.DidYouMean(block)
		}
	}
	return ""
}

// explainAlternatives explains a value for which several alternatives hold, such as a looked-up row.
func (p *pkg) explainAlternatives(f finding) finding {
	f.message = "several alternatives hold; say which one counts, or mark it with *"
	l, ok := p.lookupOf(f)
	if !ok {
		return f
	}
	given, rows, ok := p.given(l)
	if row := rows.children[given]; ok && row != nil && len(row.nodes) > 0 {
		f.at, f.message = row.nodes[0].Pos().Position(), l.table+"."+given+": "+f.message
	}
	return f
}

// lookup describes how the row of an object looks up a row of another table, as in _classes[row.class].
type lookup struct {
	row        ast.Node
	table, key string
	// value is the key's value in the row, or nil if the row has none.
	value ast.Expr
}

// lookupOf returns the lookup that a finding is about.
func (p *pkg) lookupOf(f finding) (lookup, bool) {
	_, object := p.objectOf(f.path)
	candidates := userPositions(f.positions)
	r, found := p.written().row(object, p.ofObject(f.path))
	if !found || len(candidates) == 0 {
		return lookup{}, false
	}
	expr := p.written().lookupAt(candidates[0])
	if expr == nil {
		return lookup{}, false
	}
	key := nameOf(expr.Index)
	return lookup{row: r.node, table: nameOf(expr.X), key: key, value: r.fields[key]}, key != ""
}

// given returns the key in a row, and the rows of the looked-up table.
func (p *pkg) given(l lookup) (key string, rows *fieldIndex, ok bool) {
	lit, ok := l.value.(*ast.BasicLit)
	rows = p.fields.children[l.table]
	if !ok || lit.Kind != token.STRING || rows == nil {
		return "", &fieldIndex{}, false
	}
	return strings.Trim(lit.Value, `"`), rows, true
}

// nameOf returns the last name of a reference, or "" for any other expression.
func nameOf(expr ast.Expr) string {
	switch e := expr.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return label(e.Sel)
	}
	return ""
}

// missing merges the findings about missing required fields of an object into one, and suggests another object that the user
// may have meant.
func (p *pkg) missing(findings []finding) []finding {
	var out, missing []finding
	for _, f := range findings {
		if strings.HasPrefix(f.format, "field is required but not present") {
			missing = append(missing, f)
		} else {
			out = append(out, f)
		}
	}
	if len(missing) == 0 {
		return out
	}
	one := missing[0]
	depth, name := p.objectOf(one.path)
	if depth == 0 {
		return findings
	}
	var names []string
	for _, f := range missing {
		names = append(names, strings.TrimPrefix(joinPath(f.path[depth:]), "spec."))
	}
	slices.Sort(names)
	one.message = strings.Join(names, " and ") + " must be set"
	if names[0] == "metadata.name" {
		one.message += "; or unify what is around it with `schema.#Pools`, which sets it"
	}
	if p.fields.dynamic(one.path[:depth]) > 0 {
		return append(out, one)
	}
	if meant := p.meant(name, fieldNames(p.valueAt(one.path[:depth-1]))); meant != "" {
		one.message = name + " is new here, so " + one.message + meant
	}
	return append(out, one)
}

// meant suggests the object that the name of an incomplete one may have meant: a pool of the team with the first part of the
// name, a pool that ends with the name, or the pool with the most similar name.
func (p *pkg) meant(name string, others []string) string {
	own := withoutVersion(p.importPath)
	for _, folder := range p.importable {
		if team := path.Base(folder); path.Dir(folder) == path.Dir(own) && folder != own && strings.HasPrefix(name, team+"-") {
			return "; if it is of " + path.Join(path.Base(path.Dir(own)), team) + ", change it there"
		}
	}
	others = slices.DeleteFunc(others, func(other string) bool { return len(other) < minSimilar || other == name })
	if i := slices.IndexFunc(others, func(other string) bool { return strings.HasSuffix(other, "-"+name) }); i >= 0 {
		return wording.DidYouMean(others[i])
	}
	return didYouMean(name, others)
}

// minSimilar is the minimum length of a name that meant suggests.
const minSimilar = 4

// valueAt returns the value at a path, which may begin with a hidden field or a definition of the package.
func (p *pkg) valueAt(path []string) cue.Value {
	v := p.value
	for _, label := range path {
		v = p.descend(v, label)
	}
	return v
}

// descend looks up a field as the function descend does, or a hidden field of the package.
func (p *pkg) descend(v cue.Value, label string) cue.Value {
	if strings.HasPrefix(label, "_") {
		return v.LookupPath(cue.MakePath(cue.Hid(label, p.importPath)))
	}
	return descend(v, label)
}

// fieldNames returns the names of v's fields, including optional ones, sorted.
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
		v = p.descend(v, path[i])
	}
}

// descend looks up a required, optional or regular field, or a list's element.
func descend(v cue.Value, label string) cue.Value {
	if n, err := strconv.Atoi(label); err == nil {
		if element := v.LookupPath(cue.MakePath(cue.Index(n))); element.Exists() {
			return element
		}
		if element := v.LookupPath(cue.MakePath(cue.AnyIndex)); element.Exists() {
			return element
		}
	}
	if strings.HasPrefix(label, "#") {
		return v.LookupPath(cue.MakePath(cue.Def(label)))
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
