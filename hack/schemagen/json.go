// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package schemagen

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	kyaml "sigs.k8s.io/yaml"
)

// jsonDir has a JSON schema for each kind that users write, for YAML editors.
const jsonDir = "docs/reference/schemas"

// writeJSONSchemas writes the schemas. Their names, KIND_VERSION.json, follow the convention of tools that validate
// custom resources.
func writeJSONSchemas() error {
	if err := os.MkdirAll(jsonDir, 0o755); err != nil {
		return fmt.Errorf("writing JSON schemas: %w", err)
	}
	for _, plural := range kinds {
		kind, text, err := jsonSchema(filepath.Join(crdDir, "corral.dev_"+plural+".yaml"))
		if err != nil {
			return err
		}
		file := filepath.Join(jsonDir, strings.ToLower(kind)+"_"+apiVersion+".json")
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return fmt.Errorf("writing JSON schemas: %w", err)
		}
	}
	return nil
}

// jsonSchema returns the kind of a CRD and its schema as JSON Schema, draft 7.
func jsonSchema(path string) (kind string, text []byte, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", nil, fmt.Errorf("reading CRD: %w", err)
	}
	if data, err = withPatterns(data); err != nil {
		return "", nil, fmt.Errorf("parsing CRD: %w", err)
	}
	var crd struct {
		Spec struct {
			Names    struct{ Kind string }
			Versions []struct {
				Schema struct{ OpenAPIV3Schema map[string]any }
			}
		}
	}
	if err := kyaml.Unmarshal(data, &crd); err != nil {
		return "", nil, fmt.Errorf("parsing CRD: %w", err)
	}
	schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
	forEditors(schema)
	schema["$schema"] = "http://json-schema.org/draft-07/schema#"
	properties := schema["properties"].(map[string]any)
	delete(properties, "status")
	properties["apiVersion"], properties["kind"] = map[string]any{"const": "corral.dev/" + apiVersion}, map[string]any{"const": crd.Spec.Names.Kind}
	properties["metadata"] = map[string]any{"type": "object"}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	err = encoder.Encode(schema)
	return crd.Spec.Names.Kind, out.Bytes(), err
}

// forEditors removes keywords that only an API server understands, and forbids fields that it would drop.
func forEditors(node any) {
	switch x := node.(type) {
	case []any:
		for _, item := range x {
			forEditors(item)
		}
	case map[string]any:
		if _, isOpen := x["x-kubernetes-preserve-unknown-fields"]; x["type"] == "object" && x["properties"] != nil && !isOpen {
			x["additionalProperties"] = false
		}
		for key, value := range x {
			if strings.HasPrefix(key, "x-kubernetes-") {
				delete(x, key)
			}
			forEditors(value)
		}
	}
}
