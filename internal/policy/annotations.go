// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"maps"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Annotation is what the metadata of a rule or package says.
type Annotation struct {
	// Package as corral.scaling, Rule as limit; Rule is empty for the package's own.
	Package, Rule string
	// File and Line of the rule, or of the package clause.
	File        string
	Line        int
	Title       string
	Description string
	// Code is custom.code.
	Code string
	// Custom is all of custom.
	Custom map[string]any
}

// Annotations returns the metadata in modules, by file and line. Modules that don't
// parse give diagnostics. The built-in library's are those of LibraryModules.
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

// LibraryModules returns the files of the built-in library without its tests, by the name that
// decisions tell of them.
func LibraryModules() (map[string]string, error) {
	all, err := library()
	if err != nil {
		return nil, err
	}
	texts := map[string]string{}
	for name, m := range all {
		texts[name] = m.text
	}
	return texts, nil
}
