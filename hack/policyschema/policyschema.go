// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package policyschema writes the JSON Schemas of the policies' inputs to schema/policy: scaling.json, template.json
// and update.json, with the comments of internal/policy/input.go as descriptions.
package policyschema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	"github.com/corral-dev/corral/internal/policy"
)

const (
	source = "internal/policy/input.go"
	folder = "schema/policy"
)

// inputs are the Go types of the decisions' inputs.
var inputs = map[string]string{
	policy.DecisionScaling: "ScalingInput", policy.DecisionTemplate: "TemplateInput", policy.DecisionUpdate: "UpdateInput",
}

// Generate writes the schemas. Run it in the root of the repository.
func Generate() error {
	comments, err := readComments(source)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("making the folder: %w", err)
	}
	for decision, name := range inputs {
		schema := policy.InputSchema(decision)
		describe(schema, comments[name])
		for name, definition := range schema["definitions"].(map[string]any) {
			describe(definition.(map[string]any), comments[name])
		}
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", " ")
		if err := encoder.Encode(schema); err != nil {
			return fmt.Errorf("encoding the schema of %s: %w", decision, err)
		}
		if err := os.WriteFile(filepath.Join(folder, decision+".json"), text.Bytes(), 0o644); err != nil {
			return fmt.Errorf("writing a schema: %w", err)
		}
	}
	return nil
}

// describe adds the comments of a type and its fields to its schema. It converts a $ref to an allOf, because draft 7
// ignores keywords next to a $ref.
func describe(schema map[string]any, comments map[string]string) {
	if text := comments[""]; text != "" {
		schema["description"] = text
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, property := range properties {
		text := comments[name]
		if text == "" {
			continue
		}
		described := map[string]any{"description": text}
		for key, value := range property.(map[string]any) {
			if key == "$ref" {
				described["allOf"] = []any{map[string]any{key: value}}
			} else {
				described[key] = value
			}
		}
		properties[name] = described
	}
}

// readComments returns the comments of a file's structs, by the name of the type and the JSON name of the field. The
// comment of the type itself has an empty field name.
func readComments(file string) (map[string]map[string]string, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		return nil, fmt.Errorf("reading comments: %w", err)
	}
	all := map[string]map[string]string{}
	ast.Inspect(parsed, func(node ast.Node) bool {
		declaration, ok := node.(*ast.GenDecl)
		if !ok || len(declaration.Specs) != 1 {
			return true
		}
		spec, ok := declaration.Specs[0].(*ast.TypeSpec)
		if !ok {
			return true
		}
		comments := map[string]string{"": oneLine(declaration.Doc)}
		if structure, ok := spec.Type.(*ast.StructType); ok {
			for _, field := range structure.Fields.List {
				if name := jsonName(field); name != "" {
					comments[name] = oneLine(field.Doc)
				}
			}
		}
		all[spec.Name.Name] = comments
		return true
	})
	return all, nil
}

func jsonName(field *ast.Field) string {
	if field.Tag == nil {
		return ""
	}
	tag, err := strconv.Unquote(field.Tag.Value)
	if err != nil {
		return ""
	}
	name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
	return name
}

func oneLine(doc *ast.CommentGroup) string { return strings.Join(strings.Fields(doc.Text()), " ") }
