// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// inputs are the Go types of the decisions' inputs.
var inputs = map[string]reflect.Type{
	DecisionScaling:  reflect.TypeFor[ScalingInput](),
	DecisionTemplate: reflect.TypeFor[TemplateInput](),
	DecisionUpdate:   reflect.TypeFor[UpdateInput](),
}

var podType = reflect.TypeFor[corev1.Pod]()

// InputSchema returns the JSON Schema (draft 7) of a decision's input. It allows no unknown properties, except in maps
// such as labels.
func InputSchema(decision string) map[string]any {
	s := schemaWriter{definitions: map[string]any{}}
	schema := s.object(inputs[decision])
	schema["$schema"] = "http://json-schema.org/draft-07/schema#"
	schema["title"] = "Input of corral." + decision
	schema["definitions"] = s.definitions
	return schema
}

// schemas are the schemas of the decisions, and the schema "any" for helpers that any decision can call: the properties of
// all three inputs.
var schemas = sync.OnceValue(func() map[string]any {
	properties, definitions := map[string]any{}, map[string]any{}
	all := map[string]any{
		"any": map[string]any{"type": "object", "additionalProperties": false, "properties": properties, "definitions": definitions},
	}
	for decision := range inputs {
		schema := InputSchema(decision)
		maps.Copy(properties, schema["properties"].(map[string]any))
		maps.Copy(definitions, schema["definitions"].(map[string]any))
		all[decision] = schema
	}
	return all
})

// schemaName returns the name of the schema for the rules of a package.
func schemaName(pkg string) string {
	if decision, ok := strings.CutPrefix(pkg, "corral."); ok && inputs[decision] != nil {
		return decision
	}
	return "any"
}

// schemaNode is a part of a schema.
type schemaNode struct{ schema, definitions map[string]any }

// schemaOf returns the schema with the given name.
func schemaOf(name string) schemaNode {
	root := schemas()[name].(map[string]any)
	return schemaNode{root, root["definitions"].(map[string]any)}
}

// below returns a part of the schema. If the part is a $ref, it returns the definition instead. It returns false if the
// part is not a schema.
func (n schemaNode) below(part any) (schemaNode, bool) {
	schema, ok := part.(map[string]any)
	if reference, isReference := schema["$ref"].(string); isReference {
		return n.below(n.definitions[strings.TrimPrefix(reference, "#/definitions/")])
	}
	return schemaNode{schema, n.definitions}, ok
}

// properties returns the fields of an object by name; nil if the names are not fixed.
func (n schemaNode) properties() map[string]any {
	properties, _ := n.schema["properties"].(map[string]any)
	return properties
}

// field returns the schema of a field of an object, or of anyElement of an array or map.
func (n schemaNode) field(name string) (schemaNode, bool) {
	for _, part := range []any{n.properties()[name], n.schema["items"], n.schema["additionalProperties"]} {
		if field, ok := n.below(part); ok {
			return field, true
		}
	}
	return schemaNode{}, false
}

// schemaWriter derives a schema from Go types in the way encoding/json encodes them.
type schemaWriter struct{ definitions map[string]any }

// leaves are types whose JSON form differs from their Go structure.
var leaves = map[reflect.Type]any{
	reflect.TypeFor[resource.Quantity]():  anyOf("string", "number"),
	reflect.TypeFor[intstr.IntOrString](): anyOf("integer", "string"),
	reflect.TypeFor[metav1.Time]():        typed("string"),
	reflect.TypeFor[metav1.MicroTime]():   typed("string"),
	reflect.TypeFor[metav1.FieldsV1]():    typed("object"),
	reflect.TypeFor[[]byte]():             typed("string"),
}

func typed(name string) map[string]any { return map[string]any{"type": name} }

func anyOf(a, b string) map[string]any { return map[string]any{"anyOf": []any{typed(a), typed(b)}} }

// of returns the schema of a type.
func (s schemaWriter) of(t reflect.Type) any {
	if leaf, ok := leaves[t]; ok {
		return leaf
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.of(t.Elem())
	case reflect.Bool:
		return typed("boolean")
	case reflect.String:
		return typed("string")
	case reflect.Int, reflect.Int32, reflect.Int64:
		return typed("integer")
	case reflect.Slice:
		if t == reflect.TypeFor[json.RawMessage]() { // the only field of this type is the pod
			return s.of(podType)
		}
		return map[string]any{"type": "array", "items": s.of(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": s.of(t.Elem())}
	default:
		return s.reference(t)
	}
}

// reference returns a $ref to a struct, which is defined once.
func (s schemaWriter) reference(t reflect.Type) any {
	if _, ok := s.definitions[t.Name()]; !ok {
		s.definitions[t.Name()] = nil // ends recursion
		s.definitions[t.Name()] = s.object(t)
	}
	return map[string]any{"$ref": "#/definitions/" + t.Name()}
}

// object returns the closed schema of a struct.
func (s schemaWriter) object(t reflect.Type) map[string]any {
	properties := map[string]any{}
	var required []any
	s.fields(t, properties, &required)
	schema := map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		schema["required"] = required
	}
	return schema
}

// fields adds a struct's properties, including the properties of inlined structs.
func (s schemaWriter) fields(t reflect.Type, properties map[string]any, required *[]any) {
	for field := range t.Fields() {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-" || !field.IsExported():
		case name == "":
			s.fields(field.Type, properties, required)
		default:
			properties[name] = s.of(field.Type)
			if !strings.Contains(options, "omit") {
				*required = append(*required, name)
			}
		}
	}
}
