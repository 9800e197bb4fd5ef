// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/ast/astutil"
	cueerrors "cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/parser"
	"cuelang.org/go/cue/token"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// A comparison with bottom, as in `if v.class != _|_`, tests whether a field exists. CUE treats a field whose value has
// an error in the same way as an absent field. So a misspelt name in such a field makes pools disappear without an
// error. To detect this, Corral evaluates a module with such comparisons once more, with a hidden field next to each
// comparison. The hidden field contains the tested expression. Corral reports a hidden field that fails for any reason
// but absence.

// guardPrefix is the prefix of the names of the hidden fields.
const guardPrefix = "_corralGuard"

// guard is one comparison with bottom.
type guard struct {
	at token.Position
	// text is the tested expression.
	text string
	// iterates is true if the comparison is evaluated for each of several values.
	iterates bool
}

// reportGuards reports comparisons with bottom in the packages of m whose tested expression fails.
func (c *compilation) reportGuards(m *module, tags map[string]string) {
	guarded := withGuards(m)
	if len(guarded.guards) == 0 || len(c.problems) > 0 {
		return
	}
	instances, err := guarded.load(tags)
	if err != nil {
		return // compileModule reports the same error
	}
	for _, instance := range instances {
		if instance.Err == nil && len(instance.Files) > 0 {
			w := &guardWalk{guarded: guarded, fields: guardFields(instance.Files), report: c.report}
			w.visit(c.cue.BuildInstance(instance), false)
		}
	}
}

// guardedModule is a module with a hidden field next to each comparison.
type guardedModule struct {
	module
	// guards contains the comparisons by the names of their hidden fields.
	guards map[string]guard
	// writers contains the writers of the changed files by file name.
	writers map[string]*guardWriter
}

func withGuards(m *module) *guardedModule {
	g := &guardedModule{
		module: module{root: m.root, path: m.path, files: maps.Clone(m.files)},
		guards: map[string]guard{}, writers: map[string]*guardWriter{},
	}
	for _, name := range m.files.sortedNames() {
		if !m.compiles(name) || !bytes.Contains(m.files[name], []byte("_|_")) {
			continue
		}
		file, err := parser.ParseFile(name, m.files[name])
		if err != nil {
			continue // compileModule reports the same error
		}
		w := &guardWriter{source: string(m.files[name]), guards: g.guards}
		ast.Walk(file, w.enter, w.leave)
		g.files[name], g.writers[name] = []byte(w.written()), w
	}
	return g
}

// guardWriter finds the comparisons with bottom in a file, and inserts the hidden fields.
type guardWriter struct {
	source string
	guards map[string]guard
	// around contains the nodes that enclose the current node, outermost first.
	around  []ast.Node
	inserts []insert
}

// insert is text to insert at an offset.
type insert struct {
	offset int
	text   string
}

func (w *guardWriter) enter(node ast.Node) bool {
	if f, ok := node.(*ast.Field); ok && label(f.Label) == "spec" {
		return false // inside an object, a comparison cannot make the object disappear
	}
	if compared := comparedWithBottom(node); compared != nil {
		w.add(compared)
	}
	w.around = append(w.around, node)
	return true
}

func (w *guardWriter) leave(ast.Node) { w.around = w.around[:len(w.around)-1] }

// comparedWithBottom returns the tested expression of a comparison with bottom, or nil for any other node.
func comparedWithBottom(node ast.Node) ast.Expr {
	b, ok := node.(*ast.BinaryExpr)
	if !ok || b.Op != token.NEQ && b.Op != token.EQL {
		return nil
	}
	if _, bottom := b.Y.(*ast.BottomLit); bottom {
		return b.X
	}
	if _, bottom := b.X.(*ast.BottomLit); bottom {
		return b.Y
	}
	return nil
}

// add inserts a hidden field into the closest enclosing struct, or at the end of the file. The field repeats the
// clauses that precede the comparison.
func (w *guardWriter) add(compared ast.Expr) {
	text := w.text(compared)
	field := guardPrefix + fmt.Sprint(len(w.guards))
	clauses, offset, separator := "", len(w.source), "\n"
	inner := ast.Node(compared)
	for _, node := range slices.Backward(w.around) {
		if s, ok := node.(*ast.StructLit); ok && s.Lbrace.IsValid() {
			offset, separator = s.Lbrace.Offset()+1, ","
			break
		}
		if comprehension, ok := node.(*ast.Comprehension); ok {
			clauses = w.before(comprehension, inner) + clauses
		}
		inner = node
	}
	if separator == "\n" {
		w.inserts = append(w.inserts, insert{offset, "\n" + field + ": [" + clauses + "{" + text + "}]\n"})
	} else {
		w.inserts = append(w.inserts, insert{offset, field + ": [" + clauses + "{" + text + "}],"})
	}
	w.guards[field] = guard{at: compared.Pos().Position(), text: text, iterates: strings.Contains(clauses, "for ")}
}

// before returns the clauses of a comprehension before the clause that contains inner.
func (w *guardWriter) before(c *ast.Comprehension, inner ast.Node) string {
	var b strings.Builder
	for _, clause := range c.Clauses {
		if clause.Pos().Offset() <= inner.Pos().Offset() && inner.End().Offset() <= clause.End().Offset() {
			break
		}
		b.WriteString(w.text(clause) + " ")
	}
	return b.String()
}

func (w *guardWriter) text(node ast.Node) string {
	return w.source[node.Pos().Offset():node.End().Offset()]
}

// written returns the text of the file with the hidden fields.
func (w *guardWriter) written() string {
	slices.SortStableFunc(w.inserts, func(a, b insert) int { return a.offset - b.offset })
	var b strings.Builder
	end := 0
	for _, i := range w.inserts {
		b.WriteString(w.source[end:i.offset] + i.text)
		end = i.offset
	}
	return b.String() + w.source[end:]
}

// original maps a position in the written file to the position in its source.
func (w *guardWriter) original(at token.Position) token.Position {
	for _, i := range w.inserts {
		if at.Offset < i.offset+len(i.text) {
			break
		}
		at.Offset -= len(i.text)
	}
	before := w.source[:min(at.Offset, len(w.source))]
	at.Line, at.Column = 1+strings.Count(before, "\n"), len(before)-strings.LastIndex(before, "\n")
	return at
}

// guardFields returns the hidden fields by their names.
func guardFields(files []*ast.File) map[string]ast.Node {
	fields := map[string]ast.Node{}
	for _, file := range files {
		astutil.Apply(file, func(cursor astutil.Cursor) bool {
			if field, ok := cursor.Node().(*ast.Field); ok && strings.HasPrefix(label(field.Label), guardPrefix) {
				fields[label(field.Label)] = field
			}
			return true
		}, nil)
	}
	return fields
}

// guardWalk finds the hidden fields in values.
type guardWalk struct {
	guarded *guardedModule
	fields  map[string]ast.Node
	report  func(v1alpha1.Diagnostic)
}

// visit checks a value and all values in it. In a building block (a hidden field or a definition), a value may be
// missing, unless the comparison is evaluated for each of several values.
func (w *guardWalk) visit(v cue.Value, block bool) {
	switch v.IncompleteKind() {
	case cue.StructKind:
		fields, err := v.Fields(cue.Hidden(true), cue.Definitions(true))
		if err != nil {
			return
		}
		for fields.Next() {
			name := fields.Selector().String()
			if field := w.fields[name]; field != nil {
				w.judge(name, field, fields.Value(), block && !w.guarded.guards[name].iterates)
				continue
			}
			w.visit(fields.Value(), block || strings.HasPrefix(name, "_") || strings.HasPrefix(name, "#"))
		}
	case cue.ListKind:
		elements, err := v.List()
		for err == nil && elements.Next() {
			w.visit(elements.Value(), block)
		}
	}
}

// judge checks each value that a comparison tested, and reports values that fail for another reason than absence.
func (w *guardWalk) judge(name string, field ast.Node, v cue.Value, block bool) {
	elements, err := v.List()
	for err == nil && elements.Next() {
		for _, e := range cueerrors.Errors(elements.Value().Err()) {
			format, _ := e.Msg()
			absent := strings.HasPrefix(format, "undefined field") || strings.HasPrefix(format, "cannot reference optional field")
			if absent && contains(field, e.Position()) || !absent && block {
				continue
			}
			w.reportFailure(w.guarded.guards[name], e)
		}
	}
}

// reportFailure reports a failure at its own position if that is in a user's file, and otherwise at the comparison.
func (w *guardWalk) reportFailure(g guard, e cueerrors.Error) {
	at, compared := g.at, ""
	for _, pos := range userPositions([]token.Pos{e.Position()}) {
		at = pos.Position()
		if writer := w.guarded.writers[at.Filename]; writer != nil {
			at = writer.original(at)
		}
		compared = fmt.Sprintf(" at %s:%d", g.at.Filename, g.at.Line)
	}
	w.report(v1alpha1.Diagnostic{File: at.Filename, Line: v1alpha1.LineNumber(at.Line), Column: v1alpha1.LineNumber(at.Column), Message: fmt.Sprintf(
		"%s; the comparison of %s with _|_%s takes it for absent", text(e), g.text, compared)})
}
