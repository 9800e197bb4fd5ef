// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Annotation is the metadata of a rule or package.
type Annotation struct {
	// Package is for example corral.scaling, and Rule is limit. Rule is empty for the metadata of a package.
	Package, Rule string
	// File and Line are the position of the rule, or of the package clause.
	File        string
	Line        int
	Title       string
	Description string
	// Code is custom.code.
	Code string
	// Custom contains all entries of custom, including code.
	Custom map[string]any
}

// Annotations returns the metadata in modules, sorted by file and line. Modules that cannot be parsed yield
// diagnostics. LibraryModules returns the modules of the built-in library.
func Annotations(modules map[string]string) ([]Annotation, []v1alpha1.Diagnostic) {
	var d diagnostics
	var all []Annotation
	for _, file := range slices.Sorted(maps.Keys(modules)) {
		module, err := parse(file, modules[file])
		if err != nil {
			d.addErrors(file, err)
			continue
		}
		for _, a := range module.Annotations {
			if a.Scope == "package" {
				all = append(all, annotationOf(a, module, "", module.Package.Location))
			}
		}
		for _, rule := range module.Rules {
			for _, a := range rule.Annotations {
				all = append(all, annotationOf(a, module, ruleName(rule), rule.Location))
			}
		}
	}
	return all, d.sorted()
}

func annotationOf(a *ast.Annotations, module *ast.Module, rule string, at *ast.Location) Annotation {
	return Annotation{
		Package: packageName(module), Rule: rule, File: at.File, Line: at.Row,
		Title: a.Title, Description: a.Description, Code: custom(a, "code"), Custom: a.Custom,
	}
}

// LibraryModules returns the files of the built-in library without its tests. The keys are the file names in the rule
// references of decisions.
func LibraryModules() map[string]string {
	texts := map[string]string{}
	for name, m := range library() {
		texts[name] = m.text
	}
	return texts
}
