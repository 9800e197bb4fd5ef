// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package yamldoc

import (
	"strings"
	"testing"

	yamlv3 "go.yaml.in/yaml/v3"
)

func TestObjectsAreReadAndAliasesAreNot(t *testing.T) {
	for text, want := range map[string]string{
		"a: 1\nb: [x]":              "",
		`{"a": {"b": null}}`:        "",
		"":                          "",
		"a: &a [x]\nb: c":           "", // an unused anchor
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

func TestAProblemHasItsLine(t *testing.T) {
	for text, want := range map[string]Problem{
		"a: &a [x]\nb:\n- *a":       {3, aliasError{}.Error()},
		"a: 1\n---\nb: &b 1\nc: *b": {4, aliasError{}.Error()},
		"a: 1\nb: [":                {2, "did not find expected node content"},
	} {
		_, err := Parse([]byte(text))
		if err == nil {
			t.Errorf("%q is read", text)
		} else if got := Problems(err); len(got) != 1 || got[0] != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}

func TestDocumentsAreParsed(t *testing.T) {
	for text, want := range map[string]int{"": 0, "# nothing": 0, "a: 1": 1, "a: 1\n---\n[b]\n---\n": 3} {
		documents, err := Parse([]byte(text))
		if err != nil || len(documents) != want {
			t.Errorf("%q: %d documents, want %d: %v", text, len(documents), want, err)
		}
		for _, d := range documents {
			if d.Kind != yamlv3.DocumentNode || len(d.Content) != 1 {
				t.Errorf("%q: %+v", text, d)
			}
		}
	}
}

func TestValuesAreReadStrictly(t *testing.T) {
	type value struct {
		A int `yaml:"a"`
	}
	for text, ok := range map[string]bool{"a: 1": true, "": true, "b: 1": false, "a: 1\na: 2": false, "a: &a 1\nb: *a": false} {
		v := value{}
		if err := Strict([]byte(text), &v); (err == nil) != ok || ok && text != "" && v.A != 1 {
			t.Errorf("%q: %+v, %v", text, v, err)
		}
	}
}
