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
		"a: 1\nb: [":                {2, "did not find expected node content: close each { and [, and put commas between their entries"},
		"a: 1\nb: *c":               {2, "there is no anchor &c for *c: put a value that begins with * in double quotes"},
		"a: {\n  b: 1\n":            {2, "did not find expected ',' or '}'"},
		"a:\n  b: 1\n\tc: 2":        {3, "found a tab character that violates indentation: indent with spaces"},
		"a:\n  b: 1\n  c:2\n  d: 3": {3, "put a space after the colon"},
		"a: b: c":                   {1, "mapping values are not allowed in this context: put a value with a colon and a space in double quotes"},
		"a: 1\nb\nc: 2":             {2, `"b" has no colon: write NAME: VALUE`},
		"a:\n  b\n    c: 2":         {2, `"b" has no colon: write NAME: VALUE`},
		"a:\n  b: 1\nc: 2\n  d: 3":  {3, "c is indented differently: indent it like b"},
		"a: 1\n\n  b: 2":            {3, "b is indented differently: indent it like a"},
	} {
		_, err := Parse([]byte(text))
		if err == nil {
			t.Errorf("%q is read", text)
		} else if got := Problems([]byte(text), err); len(got) != 1 || got[0] != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}

// Every problem of every broken variant of a manifest has a line of the file, and a short message.
func TestProblemsOfMutatedText(t *testing.T) {
	const manifest = "apiVersion: corral.dev/v1alpha1\nkind: PoolSource\nmetadata: {name: web}\nspec:\n  path: teams/web\n  list:\n  - a: 1\n    b: [x, y]\n"
	for i := range len(manifest) {
		for _, with := range []string{"", "{", "]", ":", "\t", "\n", "*", "\"", "\x00", strings.Repeat("x", 5000)} {
			text := []byte(manifest[:i] + with + manifest[i+1:])
			_, err := Parse(text)
			if err == nil {
				continue
			}
			for _, p := range Problems(text, err) {
				if lines := 1 + strings.Count(string(text), "\n"); p.Line < 1 || p.Line > lines || len(p.Message) > 300 {
					t.Errorf("%q at %d: line %d, %d bytes of message", with[:min(len(with), 5)], i, p.Line, len(p.Message))
				}
			}
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
