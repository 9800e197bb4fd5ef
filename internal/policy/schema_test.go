// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// TestInputsAreOfTheirSchema validates actual inputs of rules against the published schemas.
func TestInputsAreOfTheirSchema(t *testing.T) {
	in := fleetInput()
	in.Usage.Labels = map[string]Group{"team": in.Usage.Namespace}
	b := NewSet().For(in.Pool)
	for decision, q := range map[string]*question{
		DecisionScaling:  b.aboutScaling(in),
		DecisionTemplate: b.aboutPod(TemplateInput{Pool: in.Pool, Pod: readPod(t)}),
		DecisionUpdate:   b.aboutUpdate(UpdateInput{Pool: in.Pool, Change: Change{Phase: "Canary"}}),
	} {
		read, err := q.parsed()
		if err != nil {
			t.Fatal(err)
		}
		content, err := ast.JSON(read.term.Value)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		input, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		if err := published(t, decision).Validate(input); err != nil {
			t.Errorf("what corral.%s is asked about isn't of its schema: %v", decision, err)
		}
	}
}

func published(t *testing.T, decision string) *jsonschema.Schema {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile("../../schema/policy/" + decision + ".json")
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// TestPublishedSchemasServeOPA checks a module against the published files, as opa check -s does.
func TestPublishedSchemasServeOPA(t *testing.T) {
	cases := map[string]struct{ decision, good, bad string }{
		"pool":      {DecisionScaling, "input.pool.scale.max", "input.pool.scale.maximum"},
		"group":     {DecisionScaling, "input.usage.labels.team.granted", "input.usage.label"},
		"member":    {DecisionScaling, "input.usage.all.members[_].wanted", "input.usage.all.members[_].want"},
		"container": {DecisionTemplate, "input.pod.spec.containers[_].securityContext.privileged", "input.pod.spec.containers[_].privileged"},
		"label":     {DecisionTemplate, "input.pod.metadata.labels.anything", "input.pod.metadata.label"},
		"change":    {DecisionUpdate, "input.change.phase", "input.change.step"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if err := checkPublished(t, c.decision, c.good); err != nil {
				t.Errorf("%s is refused: %v", c.good, err)
			}
			if err := checkPublished(t, c.decision, c.bad); err == nil {
				t.Errorf("%s is accepted", c.bad)
			}
		})
	}
}

func checkPublished(t *testing.T, decision, reference string) error {
	t.Helper()
	text, err := os.ReadFile("../../schema/policy/" + decision + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var schema any
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	set := ast.NewSchemaSet()
	set.Put(ast.SchemaRootRef, schema)
	compiler := ast.NewCompiler().WithSchemas(set)
	compiler.Compile(map[string]*ast.Module{"p.rego": ast.MustParseModule("package p\nx if " + reference)})
	if compiler.Failed() {
		return compiler.Errors
	}
	return nil
}
