// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// inputCheck is a tracer that checks the inputs of tests against the schema of the rules that they evaluate. A test may
// omit fields, but not invent them: a test with an input that cannot occur proves nothing.
type inputCheck struct {
	// next receives all events, too; nil for none.
	next topdown.QueryTracer
	// wrong holds the first error in each test's inputs, by the test's position.
	wrong map[string]string

	test   string // the current test
	input  *ast.Term
	schema string
}

// Enabled implements topdown.QueryTracer.
func (c *inputCheck) Enabled() bool { return true }

// Config implements topdown.QueryTracer.
func (c *inputCheck) Config() topdown.TraceConfig { return topdown.TraceConfig{} }

// TraceEvent implements topdown.QueryTracer. Before OPA tries the rules of a name, it emits one event for all of them.
func (c *inputCheck) TraceEvent(e topdown.Event) {
	if c.next != nil {
		c.next.TraceEvent(e)
	}
	switch rule, isRule := e.Node.(*ast.Rule); {
	case e.Op == topdown.EnterOp && isRule && rule.Location != nil && testFile(rule.Location.File) && strings.HasPrefix(ruleName(rule), "test_"):
		c.test = testAt(rule.Location)
	case e.Op == topdown.IndexOp && e.Ref != nil && e.Input() != nil:
		c.check(*e.Ref, e.Input())
	}
}

// testAt returns the position of a test.
func testAt(at *ast.Location) string { return fmt.Sprintf("%s:%d", at.File, at.Row) }

// check records an invalid input for the rules of a name.
func (c *inputCheck) check(name ast.Ref, input *ast.Term) {
	schema := "any"
	for decision := range inputs {
		if name.HasPrefix(ast.Ref{ast.DefaultRootDocument, ast.StringTerm("corral"), ast.StringTerm(decision)}) {
			schema = decision
		}
	}
	if input == c.input && schema == c.schema || c.wrong[c.test] != "" {
		return
	}
	c.input, c.schema = input, schema
	whole := schemas()[schema].(map[string]any)
	definitions, _ := whole["definitions"].(map[string]any)
	if why := unfit(whole, definitions, "input", input.Value); why != "" {
		c.wrong[c.test] = "rules never get what the test gives them: " + why
	}
}

// unfit describes the part of a value that does not match a schema. It returns "" if all of it does.
func unfit(schema any, definitions map[string]any, path string, value ast.Value) string {
	s, _ := schema.(map[string]any)
	if reference, ok := s["$ref"].(string); ok {
		return unfit(definitions[strings.TrimPrefix(reference, "#/definitions/")], definitions, path, value)
	}
	types := []any{s}
	if alternatives, ok := s["anyOf"].([]any); ok {
		types = alternatives
	}
	var names []string
	for _, t := range types {
		name, _ := t.(map[string]any)["type"].(string)
		names = append(names, name)
	}
	if !slices.ContainsFunc(names, func(name string) bool { return isOfType(value, name) }) {
		return fmt.Sprintf("%s is of type %s, not %s", path, strings.Join(names, " or "), ast.ValueName(value))
	}
	var why string
	switch v := value.(type) {
	case ast.Object:
		v.Until(func(key, element *ast.Term) bool {
			why = unfitField(s, definitions, path, textOf(key), element.Value)
			return why != ""
		})
	case *ast.Array:
		for i := 0; i < v.Len() && why == ""; i++ {
			why = unfit(s["items"], definitions, fmt.Sprintf("%s[%d]", path, i), v.Elem(i).Value)
		}
	}
	return why
}

// unfitField does the same for a field of an object.
func unfitField(s, definitions map[string]any, path, name string, value ast.Value) string {
	properties, _ := s["properties"].(map[string]any)
	if property := properties[name]; property != nil {
		return unfit(property, definitions, path+"."+name, value)
	}
	if others, isOpen := s["additionalProperties"].(map[string]any); isOpen {
		return unfit(others, definitions, path+"."+name, value)
	}
	if properties == nil {
		return "" // an object with arbitrary fields
	}
	return fmt.Sprintf("%s has no %s; %s", path, name, oneOf(name, slices.Sorted(maps.Keys(properties))))
}

// isOfType reports whether a value has a JSON Schema type.
func isOfType(value ast.Value, name string) bool {
	switch v := value.(type) {
	case ast.Object:
		return name == "object"
	case *ast.Array:
		return name == "array"
	case ast.String:
		return name == "string"
	case ast.Boolean:
		return name == "boolean"
	case ast.Number:
		_, isInteger := v.Int64()
		return name == "number" || name == "integer" && isInteger
	}
	return false
}
