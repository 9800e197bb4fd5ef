// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package schemagen

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/ast/astutil"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/format"
	"cuelang.org/go/cue/token"
	"cuelang.org/go/encoding/jsonschema"
	"cuelang.org/go/encoding/yaml"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kyaml "sigs.k8s.io/yaml"
)

const apiVersion = "v1alpha1"

// specDefinitions returns a CUE file with one definition #KINDSpec for each of the named CRDs in dir (plural, as in the
// file name), in that order.
func specDefinitions(dir string, plurals ...string) ([]byte, error) {
	file := &ast.File{Decls: []ast.Decl{&ast.Package{Name: ast.NewIdent("schema")}}}
	for _, plural := range plurals {
		field, err := specDefinition(filepath.Join(dir, "corral.dev_"+plural+".yaml"))
		if err != nil {
			return nil, err
		}
		file.Decls = append(file.Decls, field)
	}
	if err := astutil.SanitizeFiles([]*ast.File{file}); err != nil {
		return nil, fmt.Errorf("adding imports: %w", err)
	}
	tidy(file)
	nameStructs(file)
	text, err := format.Node(file)
	if err != nil {
		return nil, err
	}
	return nameScalars(text)
}

// scalar matches a pattern, with the expression that applies it to a string, or to a number or a string.
var scalar = regexp.MustCompile(`matchN\(>=1, \[int, string\]\) & \(int \| (=~"[^"]*")\)|=~"[^"]*"`)

// nameScalars replaces patterns by the equivalent definitions in schema.cue, which have readable error messages.
func nameScalars(specs []byte) ([]byte, error) {
	written, err := os.ReadFile(filepath.Join(schemaDir, "schema.cue"))
	if err != nil {
		return nil, fmt.Errorf("reading the definitions: %w", err)
	}
	names := map[string][]byte{}
	for _, found := range regexp.MustCompile(`(?m)^(#\w+):.*(=~"[^"]*") \| error\(`).FindAllSubmatch(written, -1) {
		names[string(found[2])] = found[1]
	}
	return scalar.ReplaceAllFunc(specs, func(found []byte) []byte {
		pattern := found
		if inner := scalar.FindSubmatch(found)[1]; inner != nil {
			pattern = inner
		}
		if name, ok := names[string(pattern)]; ok {
			return name
		}
		return found
	}), nil
}

// specDefinition extracts the schema of spec from one CRD.
func specDefinition(path string) (*ast.Field, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading CRD: %w", err)
	}
	if data, err = withPatterns(data); err != nil {
		return nil, fmt.Errorf("parsing CRD: %w", err)
	}
	if data, err = withoutTemplate(data); err != nil {
		return nil, fmt.Errorf("parsing CRD: %w", err)
	}
	yamlFile, err := yaml.Extract(path, data)
	if err != nil {
		return nil, fmt.Errorf("parsing CRD: %w", err)
	}
	crds, err := jsonschema.ExtractCRDs(cuecontext.New().BuildFile(yamlFile), nil)
	if err != nil {
		return nil, fmt.Errorf("extracting %s: %w", path, err)
	}
	if len(crds) != 1 {
		return nil, fmt.Errorf("extracting %s: want one CRD, got %d", path, len(crds))
	}
	version, ok := crds[0].Versions[apiVersion]
	if !ok {
		return nil, fmt.Errorf("extracting %s: no version %s", path, apiVersion)
	}
	for _, decl := range version.Decls {
		field, ok := decl.(*ast.Field)
		if !ok || labelName(field.Label) != "spec" {
			continue
		}
		field.Label = ast.NewIdent("#" + crds[0].Data.Spec.Names.Kind + "Spec")
		field.Constraint = token.ILLEGAL
		return field, nil
	}
	return nil, fmt.Errorf("extracting %s: no spec", path)
}

// matches matches the beginning of a rule that requires a pattern. CRDs use such rules because a pattern cannot have a
// message.
var matches = regexp.MustCompile(`^self\.matches\(r'([^']+)'\)`)

// withPatterns adds the pattern to each string whose rule requires one, because CUE ignores the rules of CRDs.
func withPatterns(crd []byte) ([]byte, error) {
	var content any
	if err := kyaml.Unmarshal(crd, &content); err != nil {
		return nil, err
	}
	addPatterns(content)
	return kyaml.Marshal(content)
}

// withoutTemplate removes the fields that a definition has for a pod template: #PodTemplateSpec has all of them.
func withoutTemplate(crd []byte) ([]byte, error) {
	content := map[string]any{}
	if err := kyaml.Unmarshal(crd, &content); err != nil {
		return nil, err
	}
	versions, _, err := unstructured.NestedSlice(content, "spec", "versions")
	for _, version := range versions {
		unstructured.RemoveNestedField(version.(map[string]any), "schema", "openAPIV3Schema", "properties", "spec", "properties", "template", "properties")
	}
	if err == nil {
		err = unstructured.SetNestedSlice(content, versions, "spec", "versions")
	}
	if err != nil {
		return nil, err
	}
	return kyaml.Marshal(content)
}

func addPatterns(node any) {
	switch x := node.(type) {
	case []any:
		for _, item := range x {
			addPatterns(item)
		}
	case map[string]any:
		for _, value := range x {
			addPatterns(value)
		}
		rules, _ := x["x-kubernetes-validations"].([]any)
		for _, rule := range rules {
			text, _ := rule.(map[string]any)["rule"].(string)
			if found := matches.FindStringSubmatch(text); found != nil {
				x["pattern"] = found[1]
				delete(x, "maxLength") // the pattern limits the length
			}
		}
	}
}

// tidy writes labels without quotes where CUE allows it, and calls on one line.
func tidy(file *ast.File) {
	ast.Walk(file, func(n ast.Node) bool {
		switch x := n.(type) {
		case *ast.Field:
			if name := labelName(x.Label); ast.IsValidIdent(name) {
				label := ast.NewIdent(name)
				ast.SetRelPos(label, x.Label.Pos().RelPos())
				x.Label = label
			}
		case *ast.CallExpr:
			for _, arg := range x.Args {
				ast.SetRelPos(arg, token.NoSpace)
			}
		}
		return true
	}, nil)
}

// nameStructs moves the struct of each optional field into a hidden definition. CUE expands an inline struct for each
// object, and a referenced one only for objects with the field.
func nameStructs(file *ast.File) {
	var decls []ast.Decl
	for _, decl := range file.Decls {
		decls = append(decls, decl)
		if field, ok := decl.(*ast.Field); ok {
			decls = append(decls, structsOf("_"+labelName(field.Label), field.Value)...)
		}
	}
	file.Decls = decls
}

// structsOf returns the definitions that replace structs in an expression. Their names begin with prefix.
func structsOf(prefix string, in ast.Expr) (definitions []ast.Decl) {
	switch x := in.(type) {
	case *ast.StructLit:
		for _, element := range x.Elts {
			if field, ok := element.(*ast.Field); ok {
				definitions = append(definitions, structOfField(prefix, field)...)
			}
		}
	case *ast.BinaryExpr:
		definitions = append(structsOf(prefix, x.X), structsOf(prefix, x.Y)...)
	case *ast.ListLit:
		for _, element := range x.Elts {
			if rest, ok := element.(*ast.Ellipsis); ok {
				definitions = append(definitions, structOfItems(prefix, rest)...)
			}
		}
	}
	return definitions
}

// structOfField returns the definition that replaces a field's struct, if the field is optional, and the definitions
// for structs within it.
func structOfField(prefix string, field *ast.Field) []ast.Decl {
	label := labelName(field.Label)
	if label == "" { // a pattern
		return structsOf(prefix, field.Value)
	}
	name := prefix + strings.ToUpper(label[:1]) + label[1:]
	inner := structsOf(name, field.Value)
	if field.Constraint != token.OPTION || !isStruct(field.Value) {
		return inner
	}
	definition := &ast.Field{Label: ast.NewIdent(name), Value: field.Value}
	ast.SetRelPos(definition, token.NewSection)
	field.Value = ast.NewIdent(name)
	return append([]ast.Decl{definition}, inner...)
}

// structOfItems returns the definition that replaces the struct of a list's items, and the definitions for structs
// within it. In CUE v0.17 a list with a maximum length would otherwise accept items with unknown fields:
// list.MaxItems(3) & [...{a!: string}] is not closed, even in a definition.
func structOfItems(prefix string, rest *ast.Ellipsis) []ast.Decl {
	inner := structsOf(prefix, rest.Type)
	if !isStruct(rest.Type) {
		return inner
	}
	name := ast.NewIdent("_#" + strings.TrimLeft(prefix, "_#") + "Item")
	definition := &ast.Field{Label: name, Value: rest.Type}
	ast.SetRelPos(definition, token.NewSection)
	rest.Type = ast.NewIdent(name.Name)
	return append([]ast.Decl{definition}, inner...)
}

// isStruct reports whether an expression is a struct, with or without a limit on its fields.
func isStruct(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.StructLit:
		return true
	case *ast.BinaryExpr:
		return x.Op == token.AND && (isStruct(x.X) || isStruct(x.Y))
	}
	return false
}

func labelName(label ast.Label) string {
	switch x := label.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.BasicLit:
		name, err := strconv.Unquote(x.Value)
		if err == nil && !slices.Contains([]string{"true", "false", "null"}, name) {
			return name
		}
	}
	return ""
}
