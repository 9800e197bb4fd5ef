// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package crdgen adds to the CRDs what markers cannot express: limits for types of other projects, for values of string
// maps and for everything that only the controller writes; and the schema of the lists in a pod template.
package crdgen

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

const folder = "charts/corral/files/crds"

const (
	maxLength     = "maxLength"
	maxItems      = "maxItems"
	maxProperties = "maxProperties"
)

// maximum of a field: the schema's keyword, and the number.
type maximum struct {
	keyword string
	most    int
}

// maxima by the end of a field's path, where the markers of its type define none.
var maxima = map[string]maximum{
	".matchLabels": {maxProperties, 64}, ".matchLabels.*": {maxLength, 63},
	".matchExpressions": {maxItems, 64}, ".matchExpressions[].key": {maxLength, 317}, ".matchExpressions[].operator": {maxLength, 32},
	".matchExpressions[].values": {maxItems, 64}, ".matchExpressions[].values[]": {maxLength, 63},
	".resources.requireRequests[]": {maxLength, 317}, ".resources.requireLimits[]": {maxLength, 317},
	"spec.modules.*": {maxLength, v1alpha1.MaxPolicyBytes}, "spec.tags.*": {maxLength, 4096},
	"spec.dependsOn[].name": {maxLength, 253}, "spec.dependsOn[].namespace": {maxLength, 63},
	"status.conditions": {maxItems, 32}, "status.inventory.entries": {maxItems, 32768}, // more than etcd stores in an object
}

// maxStatusItems is the maximum for a list in a status that has no maximum of its own.
const maxStatusItems = 1024

// Generate changes the CRDs in place. Run it in the root of the repository.
func Generate() error {
	files, err := filepath.Glob(filepath.Join(folder, "corral.dev_*.yaml"))
	if err != nil {
		return fmt.Errorf("looking for CRDs: %w", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("reading a CRD: %w", err)
		}
		if text, err = bounded(text); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return fmt.Errorf("writing a CRD: %w", err)
		}
	}
	return nil
}

// bounded returns a CRD with the maxima.
func bounded(crd []byte) ([]byte, error) {
	var definition map[string]any
	if err := yaml.Unmarshal(crd, &definition); err != nil {
		return nil, fmt.Errorf("decoding it: %w", err)
	}
	for _, version := range at[[]any](definition, "spec", "versions") {
		fields := at[map[string]any](version, "schema", "openAPIV3Schema", "properties")
		for _, part := range []string{"apiVersion", "kind"} {
			bound(at[map[string]any](fields, part), "."+part)
		}
		for _, part := range []string{"spec", "status"} {
			if schema, ok := fields[part].(map[string]any); ok {
				declareReserved(schema)
				declareTemplate(schema)
				bound(schema, part)
			}
		}
	}
	text := bytes.NewBufferString("---\n")
	encoder := yamlv3.NewEncoder(text) // it does not wrap lines: deep in a definition, each additional line is mostly white space
	encoder.SetIndent(2)
	encoder.CompactSeqIndent()
	document := &yamlv3.Node{}
	if err := document.Encode(definition); err != nil {
		return nil, fmt.Errorf("encoding it: %w", err)
	}
	compact(document)
	if err := encoder.Encode(document); err != nil {
		return nil, fmt.Errorf("encoding it: %w", err)
	}
	return text.Bytes(), nil
}

// onOneLine are keys whose lists have short items. Block style would repeat the indentation, which is most of a line
// deep in a definition.
var onOneLine = []string{"enum", "required", "x-kubernetes-list-map-keys", "shortNames", "categories"}

// compact writes short lists, and each rule, on one line.
func compact(node *yamlv3.Node) {
	for i, child := range node.Content {
		isValue := node.Kind == yamlv3.MappingNode && i%2 == 1
		switch {
		case isValue && child.Kind == yamlv3.SequenceNode && slices.Contains(onOneLine, node.Content[i-1].Value):
			child.Style = yamlv3.FlowStyle
		case isValue && node.Content[i-1].Value == "x-kubernetes-validations":
			for _, rule := range child.Content {
				rule.Style = yamlv3.FlowStyle
			}
		}
		compact(child)
	}
}

// declareReserved declares the keys that a policy's data must not have. A rule cannot read a preserved field that no schema declares.
func declareReserved(spec map[string]any) {
	data := at[map[string]any](spec, "properties", "data")
	if data == nil {
		return
	}
	keys := map[string]any{}
	for _, name := range []string{"library", "parameters"} {
		keys[name] = map[string]any{
			"description": name + " must not be set: in rules, data." + name + " is spec." + name + ".",
			"type":        "object", "x-kubernetes-preserve-unknown-fields": true,
		}
	}
	data["properties"] = keys
}

// templateLists are the lists of a pod template that have a schema, with their description and maximum.
var templateLists = map[string]struct {
	description string
	most        int
}{
	"containers":     {"containers by name. The one named runner runs jobs.", v1alpha1.MaxContainers},
	"initContainers": {"initContainers by name.", v1alpha1.MaxContainers},
	"volumes":        {"volumes by name.", v1alpha1.MaxVolumes},
}

// declareTemplate gives the lists of a pool's pod template a schema. They are keyed by name, so that the owner of one container's image changes
// nothing else of the list. All other fields are Kubernetes's, and Corral checks them when it builds the pod: their schema would take 500 kB.
func declareTemplate(spec map[string]any) {
	template := at[map[string]any](spec, "properties", "template")
	if template == nil {
		return
	}
	lists := map[string]any{}
	for name, list := range templateLists {
		lists[name] = map[string]any{
			"description": list.description, "type": "array", "maxItems": list.most,
			"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": []any{"name"},
			"items": map[string]any{
				"type": "object", "x-kubernetes-preserve-unknown-fields": true, "required": []any{"name"},
				"properties": map[string]any{"name": map[string]any{"type": "string", "maxLength": 63}},
			},
		}
	}
	template["properties"] = map[string]any{"spec": map[string]any{
		"description": "spec of the pod: a PodSpec.",
		"type":        "object", "x-kubernetes-preserve-unknown-fields": true, "properties": lists,
	}}
	template["x-kubernetes-validations"] = []any{map[string]any{
		"rule":      "has(self.spec) && has(self.spec.containers) && self.spec.containers.exists(c, c.name == 'runner')",
		"message":   "a container must be named runner",
		"fieldPath": ".spec.containers",
	}}
}

// at returns the value at a path of fields; the zero value if it has another type.
func at[T any](value any, path ...string) T {
	for _, name := range path {
		object, _ := value.(map[string]any)
		value = object[name]
	}
	found, _ := value.(T)
	return found
}

// ofKubernetes are parts of the paths of fields with Kubernetes types.
var ofKubernetes = []string{".apiVersion", ".kind", ".conditions[].", ".matchLabels", ".matchExpressions"}

// shorten puts a description on one line, without indentation. It keeps only the first sentence of Kubernetes'
// descriptions, because the others are about the implementation of the type.
func shorten(schema map[string]any, path string) {
	description := strings.Join(strings.Fields(at[string](schema, "description")), " ")
	if description != "" {
		schema["description"] = description
	}
	first, _, more := strings.Cut(description, ". ")
	if more && slices.ContainsFunc(ofKubernetes, func(part string) bool { return strings.Contains(path, part) }) {
		schema["description"] = first + "."
	}
}

// bound adds maxima to a schema and to the schemas below it.
func bound(schema map[string]any, path string) {
	shorten(schema, path)
	if m, ok := maximumOf(schema, path); ok && schema[m.keyword] == nil {
		schema[m.keyword] = m.most
	}
	for name, inner := range at[map[string]any](schema, "properties") {
		bound(inner.(map[string]any), path+"."+name)
	}
	if inner := at[map[string]any](schema, "additionalProperties"); inner != nil {
		bound(inner, path+".*")
	}
	if inner := at[map[string]any](schema, "items"); inner != nil {
		bound(inner, path+"[]")
	}
}

// maximumOf returns the maximum for a field.
func maximumOf(schema map[string]any, path string) (maximum, bool) {
	for end, m := range maxima {
		if path == end || strings.HasPrefix(end, ".") && strings.HasSuffix(path, end) {
			return m, true
		}
	}
	isStatus := strings.HasPrefix(path, "status.")
	switch schema["type"] {
	case "string":
		return maximum{maxLength, v1alpha1.MaxStatusText}, isStatus && schema["enum"] == nil && schema["format"] == nil
	case "array":
		return maximum{maxItems, maxStatusItems}, isStatus
	}
	return maximum{}, false
}
