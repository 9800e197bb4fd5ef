// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/token"
	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/corral-dev/corral/internal/yamldoc"
)

// MaxPositionBytes is the maximum size of all field positions in JSON. The compiler omits further positions; PositionOf
// then returns the position of the enclosing field.
const MaxPositionBytes = 6 << 20

// Position is the position of a field in a file.
type Position struct {
	File   string `json:"f,omitempty"`
	Line   int    `json:"l,omitempty"`
	Column int    `json:"c,omitempty"`
}

// FieldOf returns the path of a field in a struct in Kubernetes' notation: spec.scale,
// metadata.labels["corral.dev/tier"].
func FieldOf(path, name string) string {
	switch {
	case !ast.IsValidIdent(name):
		return path + "[" + strconv.Quote(name) + "]"
	case path == "":
		return name
	}
	return path + "." + name
}

// ElementOf returns the path of an element of a list, for example containers[0].
func ElementOf(path string, index int) string { return path + "[" + strconv.Itoa(index) + "]" }

// PositionOf returns the position of a field, or else of the closest enclosing field with a position, or else of the
// object.
func (o *Object) PositionOf(path string) Position {
	for path != "" {
		if at, ok := o.Positions[path]; ok {
			return at
		}
		if path == "metadata.name" {
			break // the name is also the label of the declaration
		}
		path = around(path)
	}
	return Position{File: o.File, Line: o.Line, Column: o.Column}
}

// around returns the path of the enclosing field.
func around(path string) string {
	if inner, quoted := strings.CutSuffix(path, `"]`); quoted {
		if i := strings.LastIndex(inner, `["`); i >= 0 {
			return path[:i]
		}
	}
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}

// Rename renames the files in the positions of an object and its fields.
func (o *Object) Rename(name func(file string) string) {
	if o.File != "" {
		o.File = name(o.File)
	}
	for path, at := range o.Positions {
		if at.File != "" {
			at.File = name(at.File)
			o.Positions[path] = at
		}
	}
}

// positionsOf finds the positions of the fields of an object with value v, if the options request them.
func (c *compilation) positionsOf(p *pkg, v cue.Value, object map[string]any) map[string]Position {
	if !c.positions {
		return nil
	}
	w := &fieldWalk{compilation: c, pkg: p, found: map[string]Position{}, labels: selectors(v.Path())}
	w.children("", v, object, token.Position{})
	return w.found
}

// fieldWalk walks the fields of an object.
type fieldWalk struct {
	*compilation
	pkg    *pkg
	found  map[string]Position
	labels []string // from the root of the package to the current value
}

// children visits the fields or elements of a struct or list at a position. content is its JSON, which has the labels of
// the fields: CUE would sort them topologically, which takes long. children reports whether the user wrote any of them.
func (w *fieldWalk) children(path string, v cue.Value, content any, at token.Position) (written bool) {
	switch content := content.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(content)) {
			written = w.visit(FieldOf(path, name), name, v.LookupPath(cue.MakePath(cue.Str(name))), content[name], at) || written
		}
	case []any:
		elements, err := v.List()
		for i := 0; err == nil && i < len(content) && elements.Next(); i++ {
			written = w.visit(ElementOf(path, i), strconv.Itoa(i), elements.Value(), content[i], at) || written
		}
	}
	return written
}

// visit records the position of a value, and reports whether the user wrote the value. It records no position for a
// value that the schema added.
func (w *fieldWalk) visit(path, label string, v cue.Value, content any, around token.Position) (written bool) {
	if !v.Exists() {
		return false
	}
	w.labels = append(w.labels, label)
	defer func() { w.labels = w.labels[:len(w.labels)-1] }()
	if fallback, ok := v.Default(); ok {
		v = fallback
	}
	own := userPositions([]token.Pos{v.Pos()})
	if kind := v.Kind(); kind != cue.StructKind && kind != cue.ListKind {
		if len(own) == 0 {
			return false
		}
		w.note(path, own[0].Position(), around) // the literal's position, because the field may only refer to the literal
		return true
	}
	at := w.pkg.position(w.labels, v.Pos())
	if !w.children(path, v, content, at) && len(own) == 0 {
		return false
	}
	w.note(path, at, around)
	return true
}

// note records a position if it differs from the position of the enclosing field.
func (w *fieldWalk) note(path string, at, around token.Position) {
	if at.Filename != "" && at != around {
		w.notePosition(w.found, path, Position{File: at.Filename, Line: at.Line, Column: at.Column})
	}
}

func (c *compilation) notePosition(found map[string]Position, path string, at Position) {
	const rest = 30 // approximate size of the remaining JSON
	if c.positionBytes += len(path) + len(at.File) + rest; c.positionBytes <= MaxPositionBytes {
		found[path] = at
	}
}

// YAMLPositions calls note with the position of each part of a YAML or JSON document. path is the document's path in an
// object. An invalid document has no positions.
func YAMLPositions(path, file string, text []byte, note func(path string, at Position)) {
	documents, err := yamldoc.Parse(text)
	if err != nil || len(documents) == 0 {
		return
	}
	var visit func(path string, n *yamlv3.Node)
	visit = func(path string, n *yamlv3.Node) {
		note(path, Position{File: file, Line: n.Line, Column: n.Column})
		switch n.Kind {
		case yamlv3.MappingNode:
			for i := 0; i+1 < len(n.Content); i += 2 {
				visit(FieldOf(path, n.Content[i].Value), n.Content[i+1])
			}
		case yamlv3.SequenceNode:
			for i, element := range n.Content {
				visit(ElementOf(path, i), element)
			}
		}
	}
	visit(path, documents[0].Content[0])
}
