// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// rareEvents lists the functions that run for events that no tenant causes.
var rareEvents = []string{"naming"} // a kind of Flux is installed

// One goroutine receives the events of a kind for a controller, and maps them to requests. If it visited or copied all objects of a
// namespace, each event of a large tenant would delay the events of others.
func TestEventsVisitFewObjectsAndCopyNone(t *testing.T) {
	files, err := filepath.Glob("../../controllers/*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Type.Results == nil || types.ExprString(f.Type.Results.List[0].Type) != "[]reconcile.Request" || slices.Contains(rareEvents, f.Name.Name) {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || !strings.HasSuffix(types.ExprString(call.Fun), ".List") {
					return true
				}
				seen++
				text := types.ExprString(call)
				var fields bool
				for _, arg := range call.Args {
					if c, ok := arg.(*ast.CompositeLit); ok {
						fields = fields || types.ExprString(c.Type) == "client.MatchingFields"
					}
				}
				if !fields && !strings.Contains(text, "kube.OnConnection(") || !strings.Contains(text, "client.UnsafeDisableDeepCopy") {
					t.Errorf("%s: %s lists objects without an index, or copies them: %s", filepath.Base(name), f.Name.Name, text)
				}
				return true
			})
		}
	}
	if seen < 4 {
		t.Errorf("%d lists were found", seen)
	}
}

// A queue classifies each added key. Callers add keys while they hold locks that all tenants need, and the goroutine that
// receives events adds them as well. A copy of the object would take as long as its tenant chose to make it.
func TestKeysAreClassifiedWithoutCopies(t *testing.T) {
	files, err := filepath.Glob("../../controllers/*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Name.Name != "classify" {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || !strings.HasSuffix(types.ExprString(call.Fun), ".Get") {
					return true
				}
				seen++
				if text := types.ExprString(call); !strings.Contains(text, "client.UnsafeDisableDeepCopy") {
					t.Errorf("%s: it copies the object: %s", filepath.Base(name), text)
				}
				return true
			})
		}
	}
	if seen < 3 {
		t.Errorf("%d reads were found", seen)
	}
}
