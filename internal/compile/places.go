// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/token"
)

// written indexes the fields and literals that users wrote in the files of a package. If the evaluator only names the
// template that a table row passes through, the index finds the row to change.
type written struct {
	// values are the texts of literals by position, without literals that are a type, a bound or an alternative.
	values map[token.Position]string
	// fields are all fields, each before the fields inside it. byFile has the fields of each file.
	fields []*ast.Field
	byFile map[string][]*ast.Field
	// rows are the fields whose value is a struct, by label, and the strings in lists, by text.
	rows map[string][]row
	// lookups are index expressions, and names that a let clause gives to one.
	lookups map[ast.Node]*ast.IndexExpr
}

// row is the table row from which a comprehension creates one object.
type row struct {
	node   ast.Node
	fields map[string]ast.Expr
}

// literal returns the value in a row that an error mentions: the value of the field with the same name, or the first;
// nil if there is none.
func (r row) literal(name string, args []string) ast.Node {
	for _, field := range append([]string{name}, slices.Sorted(maps.Keys(r.fields))...) {
		if lit, ok := r.fields[field].(*ast.BasicLit); ok && slices.Contains(args, lit.Value) {
			return lit
		}
	}
	return nil
}

func indexWritten(files []*ast.File) *written {
	w := &written{byFile: map[string][]*ast.Field{}, values: map[token.Position]string{}, rows: map[string][]row{}, lookups: map[ast.Node]*ast.IndexExpr{}}
	lets := map[string]*ast.IndexExpr{}
	for _, file := range files {
		ast.Walk(file, w.enter, nil)
		ast.Walk(file, func(node ast.Node) bool { return w.enterLookup(node, lets) }, nil)
	}
	return w
}

// enter indexes a node, and reports whether to visit its children.
func (w *written) enter(node ast.Node) bool {
	switch n := node.(type) {
	case *ast.ImportDecl, *ast.CallExpr, *ast.Interpolation, *ast.ForClause, *ast.IfClause:
		return false
	case *ast.UnaryExpr:
		if lit, ok := n.X.(*ast.BasicLit); ok && n.Op == token.SUB {
			w.values[n.Pos().Position()] = "-" + lit.Value
		}
		return false
	case *ast.BinaryExpr:
		return n.Op == token.AND
	case *ast.BasicLit:
		w.values[n.Pos().Position()] = n.Value
	case *ast.ListLit:
		for _, element := range n.Elts {
			if lit, ok := element.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				w.rows[strings.Trim(lit.Value, `"`)] = append(w.rows[strings.Trim(lit.Value, `"`)], row{node: lit})
			}
		}
	case *ast.Field:
		w.enterField(n)
		w.enterValue(n.Value)
		return false
	}
	return true
}

// enterLookup records a lookup, or a name that stands for one.
func (w *written) enterLookup(node ast.Node, lets map[string]*ast.IndexExpr) bool {
	switch n := node.(type) {
	case *ast.LetClause:
		if lookup, ok := n.Expr.(*ast.IndexExpr); ok {
			lets[n.Ident.Name] = lookup
		}
	case *ast.IndexExpr:
		w.lookups[n] = n
	case *ast.SelectorExpr:
		if base, ok := n.X.(*ast.Ident); ok && lets[base.Name] != nil {
			w.lookups[n] = lets[base.Name]
		}
	}
	return true
}

// lookupAt returns the lookup of the innermost expression around a position, or nil.
func (w *written) lookupAt(pos token.Pos) (lookup *ast.IndexExpr) {
	var innermost ast.Node
	for node, l := range w.lookups {
		if contains(node, pos) && (innermost == nil || contains(innermost, node.Pos()) && contains(innermost, node.End())) {
			innermost, lookup = node, l
		}
	}
	return lookup
}

func (w *written) enterField(f *ast.Field) {
	w.fields = append(w.fields, f)
	w.byFile[f.Pos().Filename()] = append(w.byFile[f.Pos().Filename()], f)
	s, ok := f.Value.(*ast.StructLit)
	if name := label(f.Label); ok && name != anyLabel {
		r := row{node: f, fields: map[string]ast.Expr{}}
		for _, decl := range s.Elts {
			if field, ok := decl.(*ast.Field); ok {
				r.fields[label(field.Label)] = field.Value
			}
		}
		w.rows[name] = append(w.rows[name], r)
	}
}

// enterValue visits a field's value without its label, because a label is not a value.
func (w *written) enterValue(value ast.Expr) { ast.Walk(value, w.enter, nil) }

// given returns the position of the wrong value among the positions of an error: the literal that the error mentions,
// or the only literal.
func (w *written) given(candidates []token.Pos, args []string) (token.Pos, string, bool) {
	var literals []token.Pos
	for _, pos := range candidates {
		if text, ok := w.values[pos.Position()]; ok {
			if slices.Contains(args, text) {
				return pos, text, true
			}
			literals = append(literals, pos)
		}
	}
	if len(literals) != 1 {
		return token.NoPos, "", false
	}
	return literals[0], w.values[literals[0].Position()], true
}

// around returns the innermost field around a position, or nil.
func (w *written) around(pos token.Pos) *ast.Field {
	fields := w.byFile[pos.Filename()]
	end, _ := slices.BinarySearchFunc(fields, pos.Offset()+1, func(f *ast.Field, offset int) int { return f.Pos().Offset() - offset })
	for _, f := range slices.Backward(fields[:end]) {
		if contains(f, pos) {
			return f
		}
	}
	return nil
}

// indentedBelow returns the name of the field to which the field at a path seems to belong because of its indentation, or
// "".
func (p *pkg) indentedBelow(path []string) string {
	nodes, depth := p.fields.find(path)
	for i, f := range p.written().fields {
		for j := i - 1; j >= 0 && depth == len(path) && slices.Contains(nodes, ast.Node(f)); j-- {
			around := p.written().fields[j]
			s, ok := around.Value.(*ast.StructLit)
			if ok && !s.Lbrace.IsValid() && contains(around, p.written().fields[i-1].Pos()) && s.Elts[0].Pos().IsNewline() && s.Elts[0].Pos().Column() == f.Pos().Column() {
				return label(around.Label)
			}
		}
	}
	return ""
}

// inField returns the first of the candidates that is inside a field with the last name of a path.
func (w *written) inField(candidates []token.Pos, path []string) (token.Pos, bool) {
	leaf := ""
	for _, label := range path {
		if _, err := strconv.Atoi(label); err != nil {
			leaf = label
		}
	}
	for _, pos := range candidates {
		if f := w.around(pos); f != nil && label(f.Label) == leaf {
			return pos, true
		}
	}
	return token.NoPos, false
}

// labels returns the names of all fields.
func (w *written) labels() []string {
	var names []string
	for _, f := range w.fields {
		if name := label(f.Label); name != anyLabel {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// topLabels returns the names of the fields and definitions at the top of a package, and anyLabel if there may be others.
func topLabels(files []*ast.File) (names []string) {
	for _, file := range files {
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.Field:
				names = append(names, label(d.Label))
			case *ast.EmbedDecl, *ast.Comprehension:
				names = append(names, anyLabel)
			case *ast.Attribute:
				if d.Name() == "embed" {
					names = append(names, anyLabel)
				}
			}
		}
	}
	return names
}

// row returns the table row for an object's name if there is exactly one outside of the objects themselves.
func (w *written) row(name string, isObject func(ast.Node) bool) (row, bool) {
	found := slices.DeleteFunc(slices.Clone(w.rows[name]), func(r row) bool { return isObject(r.node) })
	if len(found) != 1 {
		return row{}, false
	}
	return found[0], true
}

// tagOf returns the name in a field's @tag(NAME), or "".
func tagOf(f *ast.Field) string {
	if f == nil {
		return ""
	}
	for _, a := range f.Attrs {
		if key, body := a.Split(); key == "tag" {
			name, _, _ := strings.Cut(body, ",")
			return name
		}
	}
	return ""
}

// objectOf returns how many labels of a path lead to the enclosing object, and the object's name. If there is no object
// yet, it is the object that a comprehension would have created.
func (p *pkg) objectOf(path []string) (depth int, name string) {
	depth, kind := p.enclosingObject(path)
	if kind == "" {
		depth = p.fields.dynamic(path)
	}
	if depth == 0 {
		return 0, ""
	}
	if name, err := p.valueAt(path[:depth]).LookupPath(cue.MakePath(cue.Str("metadata"), cue.Str("name"))).String(); err == nil {
		return depth, name
	}
	return depth, path[depth-1]
}

// maxQuoted is the maximum length of a wrong value that is quoted.
const maxQuoted = 80

// remedy is the position at which to fix a finding, and the message for it.
type remedy struct {
	at      token.Position
	message string
	// shared is the position that several table rows have in common, if at is in one of these rows. brief is the message at
	// that position, if it differs from message.
	shared token.Position
	brief  string
}

// place returns the position at which to fix a finding, with the message.
func (p *pkg) place(f finding) remedy {
	if f.at.IsValid() {
		return remedy{at: f.at, message: f.message}
	}
	candidates := userPositions(f.positions)
	args := make([]string, len(f.args))
	for i, arg := range f.args {
		args[i] = fmt.Sprint(arg)
	}
	if field := p.tagged(candidates); field != nil && strings.HasPrefix(f.message, "invalid value") {
		return remedy{at: field.Value.Pos().Position(), message: f.message + ", and comes from the tag " + tagOf(field) + typeHint(f.message, tagOf(field))}
	}
	if pos, text, ok := p.written().given(candidates, args); ok {
		f.message = quoted(f.message, text, args)
		return p.placeOfLiteral(f, pos, candidates)
	}
	field := p.fieldWithoutValue(f, candidates)
	if field != nil {
		f.message = fmt.Sprintf("%s has no value, only %s", label(field.Label), f.args[0])
		if tag := tagOf(field); tag != "" {
			return remedy{at: field.Pos().Position(), message: f.message + setTag(tag)}
		}
	}
	return p.placeOfRow(f, field, candidates, args)
}

// mustBeOther matches a message about a string where another type is required. The value of a tag is a string, unless the
// tag has a type.
var mustBeOther = regexp.MustCompile(`must be (bool|int|number), not string$`)

// typeHint says how to give a tag the type that its field must have.
func typeHint(message, tag string) string {
	kind := mustBeOther.FindStringSubmatch(message)
	if kind == nil {
		return ""
	}
	return fmt.Sprintf("; write @tag(%s,type=%s)", tag, kind[1])
}

// quoted returns a message in which the value is written as in the user's file.
func quoted(message, text string, args []string) string {
	for _, arg := range args {
		if number.MatchString(arg) && text[0] >= '0' && text[0] <= '9' { // CUE writes 50Gi as 53687091200
			message = strings.NewReplacer("value "+arg+":", "value "+text+":", `"`+arg+`"`, `"`+text+`"`).Replace(message)
		}
	}
	if strings.HasPrefix(message, "must ") && text != `""` && len(text) <= maxQuoted {
		return fmt.Sprintf("invalid value %s: %s", text, message)
	}
	return message
}

// lacks reports whether a field is missing in a row: the given field or, if field is nil, any field because the finding has
// no position in a user's file.
func (r row) lacks(field *ast.Field, candidates []token.Pos) bool {
	return field == nil && len(candidates) == 0 || field != nil && r.fields[label(field.Label)] == nil
}

// maxName is the maximum length of an object's name in Kubernetes.
const maxName = 253

// prefixedRow returns the table row for an object's name, which may be the row's name with a prefix.
func (w *written) prefixedRow(name string, isObject func(ast.Node) bool) (row, bool) {
	r, found := w.row(name, isObject)
	for i := range name {
		if !found && name[i] == '-' && len(name) <= maxName {
			r, found = w.row(name[i+1:], isObject)
		}
	}
	return r, found
}

// setTag says how to set a tag.
func setTag(tag string) string {
	return fmt.Sprintf("; set the tag: --tag %s=VALUE, or spec.tags of the PoolSource", tag)
}

// origin returns the field around a position, or the field that it refers to, and the name that the returned field refers
// to.
func (w *written) origin(pos token.Pos) (field *ast.Field, refersTo string) {
	field = w.around(pos)
	if field == nil {
		return nil, ""
	}
	if i := slices.IndexFunc(w.fields, func(f *ast.Field) bool { return label(f.Label) == reference(field) }); i >= 0 {
		field = w.fields[i]
	}
	return field, reference(field)
}

// reference returns the name that a field's value is a reference to, or "".
func reference(field *ast.Field) string {
	if name, ok := field.Value.(*ast.Ident); ok {
		return name.Name
	}
	return ""
}

// placeOfRow returns the position in the table row of an object if the finding has to be fixed there: the value that it
// mentions, or the row itself if a field is missing. Otherwise it returns the closest position that the user wrote.
func (p *pkg) placeOfRow(f finding, field *ast.Field, candidates []token.Pos, args []string) remedy {
	depth, name := p.objectOf(f.path)
	m := remedy{at: p.position(f.path, f.positions...), message: f.message}
	if len(candidates) > 0 && strings.HasPrefix(f.format, "undefined field") {
		m.at = candidates[0].Position()
	}
	r, found := p.written().prefixedRow(name, p.ofObject(f.path))
	_, written := p.fields.find(f.path)
	if p.fields.dynamic(f.path[:depth]) == 0 && (!found || len(candidates) > 0 || written >= depth) {
		return m
	}
	if lit := r.literal(f.path[len(f.path)-1], args); lit != nil {
		m.at = lit.Pos().Position()
		return m
	}
	if found && r.lacks(field, candidates) {
		m.at, m.shared = r.node.Pos().Position(), m.at
		return m
	}
	if pos, ok := p.written().inField(candidates, f.path); ok && field == nil {
		m.at = pos.Position()
	}
	return m
}

// tagged returns the field with a tag at one of the positions. If a field there refers to a field with a tag, tagged returns
// the field with the tag. It returns nil if there is none.
func (p *pkg) tagged(candidates []token.Pos) *ast.Field {
	for _, pos := range candidates {
		if field, _ := p.written().origin(pos); tagOf(field) != "" {
			return field
		}
	}
	return nil
}

// fieldWithoutValue returns the user's field whose value is missing. It returns nil if the finding is not about a
// missing value, or is about that field itself.
func (p *pkg) fieldWithoutValue(f finding, candidates []token.Pos) *ast.Field {
	if !slices.ContainsFunc([]string{"incomplete value", "non-concrete value", "invalid non-ground value"}, func(prefix string) bool { return strings.HasPrefix(f.format, prefix) }) {
		return nil
	}
	own := ""
	if len(f.path) > 0 {
		own = f.path[len(f.path)-1]
	}
	for _, pos := range candidates {
		field := p.written().around(pos)
		if field == nil || label(field.Label) == anyLabel {
			continue
		}
		if ident, ok := field.Value.(*ast.Ident); tagOf(field) != "" || ok && ident.Pos() == pos && label(field.Label) != own {
			return field
		}
	}
	return nil
}

// placeOfLiteral returns the position of a literal. If it conflicts with another one that the user wrote, the message
// names both. A conflict between a package and an imported one has to be fixed in the package, unless many packages have
// it.
func (p *pkg) placeOfLiteral(f finding, pos token.Pos, candidates []token.Pos) remedy {
	m := remedy{at: pos.Position(), message: f.message}
	i := slices.IndexFunc(candidates, func(other token.Pos) bool {
		_, isLiteral := p.written().values[other.Position()]
		return isLiteral && other != pos
	})
	if i < 0 || !isConflict(f) {
		return m
	}
	other := candidates[i].Position()
	if p.own[other.Filename] && !p.own[m.at.Filename] {
		m.shared, m.at, other = m.at, other, m.at
	}
	m.brief = fmt.Sprintf("conflicting values %v and %v: CUE overrides no value, so remove one", f.args[0], f.args[1])
	m.message = fmt.Sprintf("%s (the other is at %s:%d:%d)", m.brief, other.Filename, other.Line, other.Column)
	return m
}

// ofObject returns a function that reports whether a node is written at the path of an object itself.
func (p *pkg) ofObject(path []string) func(ast.Node) bool {
	nodes, _ := p.fields.find(path)
	return func(node ast.Node) bool { return slices.Contains(nodes, node) }
}

// dynamic returns the number of labels in a path up to the first label that is known only after evaluation: a computed
// label, an element of a computed list, or a field of a referenced struct. It returns 0 if there is none.
func (x *fieldIndex) dynamic(path []string) int {
	for i, key := range path {
		sub, ok := x.children[key]
		if !ok {
			_, err := strconv.Atoi(key)
			if err == nil || len(x.children) == 0 || x.children[anyLabel] != nil {
				return i + 1
			}
			return 0
		}
		x = sub
	}
	return 0
}
