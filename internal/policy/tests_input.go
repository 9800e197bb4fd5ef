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

// inputCheck is a tracer that holds the inputs that tests make against the schema of the rules that they ask. What
// a decision never gives may be left out, but not made up: a test with it proves nothing.
type inputCheck struct {
	// next sees all events, too; nil if nobody else does.
	next topdown.QueryTracer
	// wrong is what is wrong with the first such input of a test, by the test's place.
	wrong map[string]string

	test   string // that runs
	input  *ast.Term
	schema string
}

// Enabled implements topdown.QueryTracer.
func (c *inputCheck) Enabled() bool { return true }

// Config implements topdown.QueryTracer.
func (c *inputCheck) Config() topdown.TraceConfig { return topdown.TraceConfig{} }

// TraceEvent implements topdown.QueryTracer. Before rules are tried, one event tells of all that the name has.
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

// testAt is the place of a test.
func testAt(at *ast.Location) string { return fmt.Sprintf("%s:%d", at.File, at.Row) }

// check notes what is wrong with an input that rules of a name are asked with.
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

// unfit says what of a value a schema doesn't have; it is empty if nothing.
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

// unfitField says what is wrong with a field of an object.
func unfitField(s, definitions map[string]any, path, name string, value ast.Value) string {
	properties, _ := s["properties"].(map[string]any)
	if property := properties[name]; property != nil {
		return unfit(property, definitions, path+"."+name, value)
	}
	if others, isOpen := s["additionalProperties"].(map[string]any); isOpen {
		return unfit(others, definitions, path+"."+name, value)
	}
	if properties == nil {
		return "" // an object of any fields
	}
	return fmt.Sprintf("%s has no %s; %s", path, name, oneOf(name, slices.Sorted(maps.Keys(properties))))
}

// isOfType tells whether a value is of a type of JSON Schema.
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
