// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package yamldoc

import (
	"strings"
	"testing"
)

func TestObjectsAreReadAndAliasesAreNot(t *testing.T) {
	for text, want := range map[string]string{
		"a: 1\nb: [x]":              "",
		`{"a": {"b": null}}`:        "",
		"":                          "",
		"a: &a [x]\nb: c":           "", // a name that nothing uses
		"a: &a [x]\nb: [*a, *a]":    "has an alias",
		"a: &a {x: 1}\nb: {<<: *a}": "has an alias",
		"a: 1\na: 2":                "already",
		"[1]":                       "cannot unmarshal",
		"a: [":                      "line 1",
	} {
		_, err := Object([]byte(text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
