// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package examples

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"
)

// The published JSON Schemas, which YAML editors use, accept the objects of each example and reject unknown
// fields.
func TestTheJSONSchemasTakeTheExamples(t *testing.T) {
	files, err := filepath.Glob("../../examples/*/objects.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	tried := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		for document := range strings.SplitSeq(string(text), "\n---\n") {
			object := map[string]any{}
			must(t, yaml.Unmarshal([]byte(document), &object))
			schema := fmt.Sprintf("../../docs/reference/schemas/%s_v1alpha1.json", strings.ToLower(fmt.Sprint(object["kind"])))
			if _, err := os.Stat(schema); err != nil {
				continue // not an object of Corral's API group
			}
			compiled, err := jsonschema.NewCompiler().Compile(schema)
			must(t, err)
			if err := compiled.Validate(object); err != nil {
				t.Errorf("%s: %v", file, err)
			}
			object["spec"].(map[string]any)["bogus"] = true
			if compiled.Validate(object) == nil {
				t.Errorf("%s: an unknown field is accepted", schema)
			}
			tried++
		}
	}
	if tried < 40 {
		t.Errorf("only %d objects were tried", tried)
	}
}
