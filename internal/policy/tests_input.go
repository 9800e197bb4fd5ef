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
	// wrong contains the first error in the inputs of each test, by the position of the test.
	wrong map[string]string

	test   string // the current test
	input  *ast.Term
	schema string
}

// Enabled implements topdown.QueryTracer.
func (c *inputCheck) Enabled() bool { return true }

// Config implements topdown.QueryTracer.
func (c *inputCheck) Config() topdown.TraceConfig { return topdown.TraceConfig{} }

// TraceEvent implements topdown.QueryTracer. Before OPA evaluates the rules with one name, it emits one IndexOp event
// for all of them.
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

// check records an error if the input does not match the schema of the rules with the given name.
func (c *inputCheck) check(name ast.Ref, input *ast.Term) {
	schema := schemaName(strings.TrimPrefix(name[:min(3, len(name))].String(), "data."))
	if input == c.input && schema == c.schema || c.wrong[c.test] != "" {
		return
	}
	c.input, c.schema = input, schema
	if why := schemaOf(schema).unfit("input", input.Value); why != "" {
		c.wrong[c.test] = "rules never get what the test gives them: " + why
	}
}

// unfit describes the first part of a value that does not match the schema. It returns "" if the whole value matches.
func (n schemaNode) unfit(path string, value ast.Value) (why string) {
	alternatives, ok := n.schema["anyOf"].([]any)
	if !ok {
		alternatives = []any{n.schema}
	}
	var names []string
	for _, a := range alternatives {
		names = append(names, a.(map[string]any)["type"].(string))
	}
	if !slices.ContainsFunc(names, func(name string) bool { return isOfType(value, name) }) {
		return fmt.Sprintf("%s is of type %s, not %s", path, strings.Join(names, " or "), ast.ValueName(value))
	}
	switch v := value.(type) {
	case ast.Object:
		v.Until(func(key, element *ast.Term) bool {
			why = n.unfitField(path, textOf(key), element.Value)
			return why != ""
		})
	case *ast.Array:
		items, _ := n.field(anyElement)
		for i := 0; i < v.Len() && why == ""; i++ {
			why = items.unfit(fmt.Sprintf("%s[%d]", path, i), v.Elem(i).Value)
		}
	}
	return why
}

// unfitField does the same for a field of an object.
func (n schemaNode) unfitField(path, name string, value ast.Value) string {
	field, ok := n.field(name)
	switch {
	case ok:
		return field.unfit(path+"."+name, value)
	case n.properties() == nil:
		return "" // an object with arbitrary fields
	}
	return fmt.Sprintf("%s has no %s; %s", path, name, oneOf(name, slices.Sorted(maps.Keys(n.properties()))))
}

// isOfType reports whether a value has a JSON Schema type.
func isOfType(value ast.Value, name string) bool {
	if n, ok := value.(ast.Number); ok && name == "integer" {
		_, ok = n.Int64()
		return ok
	}
	return ast.ValueName(value) == name
}
