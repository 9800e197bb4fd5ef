// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package maximal

import (
	"encoding/json"
	"maps"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Pin determines the value of a field. It gets the index of the list item that the field belongs to and the used share
// of the bounds. nil omits the field.
type Pin func(item int, share float64) any

// Accepts reports whether an API server accepts an object.
type Accepts func(object map[string]any) bool

// grower makes the spec of an object as large as allowed.
type grower struct {
	kind    string
	schema  *apiextensionsv1.JSONSchemaProps
	pins    map[string]Pin
	accepts Accepts
	by      size
}

// fit returns the largest object of a kind whose JSON has at most the given number of bytes. It halves the used share
// of the bounds until the object fits, and then increases it again by half of the remaining difference, six times.
func (g grower) fit(base map[string]any, most int) map[string]any {
	least, share, best := 0.0, 1.0, map[string]any(nil)
	for step, tries := 1.0, 0; tries < 14; tries++ {
		g.by = size(share)
		if grown := g.grow(base); length(grown) <= most {
			if best, least = grown, share; share == 1 {
				return best
			}
		} else if best == nil {
			step = share
		}
		if best == nil {
			share /= 2
			continue
		}
		step /= 2
		if share = least + step; step < least/16 {
			break
		}
	}
	return best
}

func length(object map[string]any) int {
	text, err := json.Marshal(object)
	if err != nil {
		return 0
	}
	return len(text)
}

// grow adds each field to an object's spec with its maximum size, or smaller, field by field, if it is rejected as a
// whole.
func (g grower) grow(base map[string]any) map[string]any {
	object := clone(base)
	spec, _ := object["spec"].(map[string]any)
	g.fields(object, spec, g.schema, "spec", 0)
	return object
}

func (g grower) fields(object, into map[string]any, s *apiextensionsv1.JSONSchemaProps, at string, n item) {
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if _, isSet := into[name]; isSet {
			continue
		}
		property, where := new(s.Properties[name]), at+"."+name
		v := value(property, where, n, g.by, g.pins)
		if v == nil {
			continue
		}
		into[name] = v
		if g.accepts(object) {
			continue
		}
		g.less(object, into, name, property, where, n)
	}
}

// less sets a field to a smaller value because its maximum was rejected.
func (g grower) less(object, into map[string]any, name string, s *apiextensionsv1.JSONSchemaProps, at string, n item) {
	if inner, ok := into[name].(map[string]any); ok && len(s.Properties) > 0 {
		for _, required := range slices.Sorted(maps.Keys(inner)) { // the smallest value first
			if !slices.Contains(s.Required, required) {
				delete(inner, required)
			}
		}
		if g.accepts(object) {
			g.fields(object, inner, s, at, n)
			return
		}
	}
	for by := g.by / 2; by > g.by/1024; by /= 2 {
		if into[name] = value(s, at, n, by, g.pins); g.accepts(object) {
			return
		}
	}
	delete(into, name)
}

// clone copies an object that contains only JSON values.
func clone(object map[string]any) map[string]any {
	copied := map[string]any{}
	for key, v := range object {
		copied[key] = cloneValue(v)
	}
	return copied
}

func cloneValue(v any) any {
	switch v := v.(type) {
	case map[string]any:
		return clone(v)
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = cloneValue(v[i])
		}
		return list
	}
	return v
}
