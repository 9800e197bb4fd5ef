// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/token"
)

// anyLabel stands for a computed label, such as "linux-\(size)".
const anyLabel = "\x00any"

// fieldIndex finds the position of a field by its path. The evaluator's positions often point into the schema, or to
// the place where a definition is used.
type fieldIndex struct {
	nodes    []ast.Node
	children map[string]*fieldIndex
}

// indexFields indexes the fields of a package's files.
func indexFields(files []*ast.File) *fieldIndex {
	root := &fieldIndex{}
	for _, file := range files {
		root.addDecls(file.Decls)
	}
	return root
}

func (x *fieldIndex) child(label string) *fieldIndex {
	if x.children == nil {
		x.children = map[string]*fieldIndex{}
	}
	if x.children[label] == nil {
		x.children[label] = &fieldIndex{}
	}
	return x.children[label]
}

func (x *fieldIndex) addDecls(decls []ast.Decl) {
	for _, decl := range decls {
		switch d := decl.(type) {
		case *ast.Field:
			sub := x.child(label(d.Label))
			sub.nodes = append(sub.nodes, d)
			sub.addExpr(d.Value)
		case *ast.EmbedDecl:
			x.addExpr(d.Expr)
		case *ast.Comprehension:
			x.addExpr(d.Value)
		}
	}
}

func (x *fieldIndex) addExpr(expr ast.Expr) {
	switch e := expr.(type) {
	case *ast.StructLit:
		x.addDecls(e.Elts)
	case *ast.BinaryExpr:
		x.addExpr(e.X)
		x.addExpr(e.Y)
	case *ast.ParenExpr:
		x.addExpr(e.X)
	case *ast.UnaryExpr:
		x.addExpr(e.X)
	case *ast.Comprehension:
		x.addExpr(e.Value)
	case *ast.ListLit:
		for i, element := range e.Elts {
			if _, ok := element.(*ast.Ellipsis); ok {
				continue
			}
			sub := x.child(strconv.Itoa(i))
			sub.nodes = append(sub.nodes, element)
			sub.addExpr(element)
		}
	}
}

// label returns the name of a field, or anyLabel.
func label(l ast.Label) string {
	switch l := l.(type) {
	case *ast.Alias:
		if inner, ok := l.Expr.(ast.Label); ok {
			return label(inner)
		}
	case *ast.Ident, *ast.BasicLit:
		name, _, err := ast.LabelName(l)
		if err == nil {
			return name
		}
	}
	return anyLabel
}

// find returns the nodes of the longest prefix of path that the index contains, and the length of that prefix.
func (x *fieldIndex) find(path []string) (nodes []ast.Node, depth int) {
	nodes = x.nodes
	if len(path) == 0 {
		return nodes, 0
	}
	for _, key := range []string{path[0], anyLabel} {
		sub, ok := x.children[key]
		if !ok {
			continue
		}
		if found, n := sub.find(path[1:]); len(found) > 0 && n+1 > depth {
			nodes, depth = found, n+1
		}
	}
	return nodes, depth
}

// position returns the best position to report for the field at path. It prefers a position of the evaluator
// (candidates) inside the field, or inside its closest known enclosing field. Otherwise it returns the field, then the
// evaluator's last position in a user's file, then the enclosing field.
func (p *pkg) position(path []string, candidates ...token.Pos) token.Position {
	candidates = userPositions(candidates)
	if p == nil {
		return first(candidates)
	}
	nodes, depth := p.fields.find(path)
	exact := depth == len(path) && len(nodes) > 0
	node, pos, found := inside(nodes, candidates)
	switch {
	case found && exact:
		return nodeStart(node, pos)
	case found:
		return pos.Position()
	case exact || len(candidates) == 0 && len(nodes) > 0:
		return nodes[0].Pos().Position()
	case len(candidates) > 0:
		return candidates[len(candidates)-1].Position()
	}
	return token.Position{}
}

// inside returns the first of the positions that is inside one of the nodes, and that node.
func inside(nodes []ast.Node, positions []token.Pos) (ast.Node, token.Pos, bool) {
	for _, node := range nodes {
		for _, pos := range positions {
			if contains(node, pos) {
				return node, pos, true
			}
		}
	}
	return nil, token.NoPos, false
}

// nodeStart returns the position of the label for a field with a struct, and the evaluator's position for every other
// node.
func nodeStart(node ast.Node, c token.Pos) token.Position {
	if field, ok := node.(*ast.Field); ok {
		if _, isStruct := field.Value.(*ast.StructLit); isStruct {
			return field.Pos().Position()
		}
	}
	return c.Position()
}

func contains(node ast.Node, pos token.Pos) bool {
	start, end := node.Pos(), node.End()
	return start.Filename() == pos.Filename() && start.Offset() <= pos.Offset() && pos.Offset() <= end.Offset()
}

func first(positions []token.Pos) token.Position {
	if len(positions) == 0 {
		return token.Position{}
	}
	return positions[0].Position()
}

// userPositions drops invalid positions and positions in the schema.
func userPositions(positions []token.Pos) []token.Pos {
	var out []token.Pos
	for _, pos := range positions {
		if pos.IsValid() && pos.Filename() != "" && !strings.HasPrefix(pos.Filename(), schemaName) {
			out = append(out, pos)
		}
	}
	return out
}

// selectors returns the labels of a path without quotes.
func selectors(path cue.Path) []string {
	list := path.Selectors()
	out := make([]string, len(list))
	for i, s := range list {
		if s.LabelType() == cue.StringLabel {
			out[i] = s.Unquoted()
		} else {
			out[i] = s.String()
		}
	}
	return out
}
