// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/corral-dev/corral/internal/report"
)

// sarifSchema returns the OASIS schema of SARIF 2.1.0, errata 01. It rejects unknown properties.
func sarifSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	schema, err := jsonschema.NewCompiler().Compile(filepath.Join("testdata", "sarif-schema-2.1.0.json"))
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

func TestSARIFIsOfItsSchema(t *testing.T) {
	schema := sarifSchema(t)
	if err := schema.Validate(map[string]any{"version": "2.1.0", "runs": []any{map[string]any{"tools": "corral"}}}); err == nil {
		t.Fatal("the schema accepts anything")
	}
	for name, findings := range map[string][]report.Finding{
		"none":      nil,
		"all kinds": findings,
		"bare":      {{Level: report.Error, Rule: "r", Message: "m"}},
	} {
		var b bytes.Buffer
		if err := writeJSON(&b, report.SARIF("", findings)); err != nil {
			t.Fatal(err)
		}
		log, err := jsonschema.UnmarshalJSON(&b)
		if err != nil {
			t.Fatal(err)
		}
		if err := schema.Validate(log); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
