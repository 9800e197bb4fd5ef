// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package docgen

import (
	"testing"

	"sigs.k8s.io/yaml"
)

func TestTypesOfFields(t *testing.T) {
	const quantity = `{x-kubernetes-int-or-string: true, pattern: '^[0-9]+([KMGTPE]i|[numkMGTPE])?$'}`
	for field, want := range map[string]string{
		`{type: string}`:                                       "string",
		`{type: string, format: date-time}`:                    "time",
		`{type: array, items: {type: integer}}`:                "list of integer",
		`{type: object, additionalProperties: {type: string}}`: "map of string",
		quantity: "quantity",
		`{type: object, additionalProperties: ` + quantity + `}`:                                                  "map of quantity",
		`{anyOf: [{type: integer}, {type: string}], x-kubernetes-int-or-string: true, pattern: '^[0-9]{1,6}%?$'}`: "integer or string",
	} {
		var s schema
		if err := yaml.UnmarshalStrict([]byte(field), &s); err != nil {
			t.Fatal(err)
		}
		if got := typeOf(s); got != want {
			t.Errorf("%s: got %q, want %q", field, got, want)
		}
	}
}
