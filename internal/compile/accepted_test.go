// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// CUE accepts references to fields that do not exist if it does not evaluate them, or ignores their errors. So does Corral.
func TestReferencesThatAreNotEvaluated(t *testing.T) {
	for name, cue := range map[string]string{
		"a presence test of a nested field":  "if lib.absent.x != _|_ {pools: linux: spec: scale: max: 1}\n",
		"a presence test in parentheses":     "if (lib.absent) != _|_ {pools: linux: spec: scale: max: 1}\n",
		"a field behind its presence test":   "if lib.absent != _|_ {pools: linux: spec: scale: max: lib.absent.max}\n",
		"a condition behind a presence test": "if lib.absent != _|_ if lib.absent.max > 1 {pools: linux: spec: scale: max: 1}\n",
		"a list with a presence test":        "pools: linux: spec: scale: max: [if lib.absent != _|_ {lib.absent}, 3][0]\n",
		"a default":                          "pools: linux: spec: scale: max: *lib.absent | 3\n",
		"a condition that is false":          "_env: *\"dev\" | \"prod\" @tag(env)\nif _env == \"prod\" {pools: linux: spec: scale: max: lib.absent}\n",
		"a definition without a use":         "#Unused: lib.#Absent\n",
		"an optional field":                  "_x: {max?: lib.absent}\n",
		"a field of an embedded file":        "pools: linux: spec: scale: max: more.max\n",
	} {
		t.Run(name, func(t *testing.T) {
			files := repository(strings.Replace(onePool, "import ", "import \"acme.test/pools/lib\"\nimport \"acme.test/pools/more\"\nimport ", 1) + "_uses: [lib.image, more.image]\n" + cue)
			files["lib/lib.cue"] = []byte("package lib\n\nimage: \"i\"\n")
			files["more/more.cue"] = []byte("@extern(embed)\n\npackage more\n\n@embed(file=more.json)\nimage: string\n")
			files["more/more.json"] = []byte(`{"image": "i", "max": 3}`)
			r := Compile(files, Options{})
			if diff := cmp.Diff([]string(nil), texts(r)); diff != "" {
				t.Error(diff)
			}
			if len(r.Objects) != 1 {
				t.Errorf("%d objects", len(r.Objects))
			}
		})
	}
}

// A reference that CUE does not evaluate does not hide a mistake, nor does a reference in a copy of another module.
func TestAReferenceDoesNotHideAMistake(t *testing.T) {
	files := repository(strings.Replace(pool("scale: max: -1\n"+template), "import ", "import \"other.test/lib\"\nimport ", 1) +
		"_env: *\"dev\" | \"prod\" @tag(env)\nif _env == \"prod\" {pools: linux: spec: scale: max: lib.absent}\n")
	files["cue.mod/pkg/other.test/lib/lib.cue"] = []byte("package lib\n\nimport \"other.test/more\"\n\nimage: \"i\"\n#T: more.#Absent\n")
	files["cue.mod/pkg/other.test/more/more.cue"] = []byte("package more\n\n#X: 1\n")
	want := []string{"pools.cue:9:13: pools.linux.spec.scale.max: invalid value -1 (out of bound >=0)"}
	if diff := cmp.Diff(want, texts(Compile(files, Options{}))); diff != "" {
		t.Error(diff)
	}
}

// Only the parameters of an object must have their required fields: not a type that it declares for its own values.
func TestRequiredFieldsOfTypesAndParameters(t *testing.T) {
	const uses = `spec: {connectionRef: name: "acme", template: spec: containers: [{name: "runner", image: "i", env: [for e in _env {e}]}]}`
	for name, tc := range map[string]struct {
		cue  string
		want []string
	}{
		"a type in an object": {
			"pools: schema.#Pools & {a: {#Env: {name!: string, value: string}, _env: [...#Env], _env: [{name: \"A\", value: \"b\"}], " + uses + "}}\n", nil},
		"a hidden type in a template": {
			"_T: {_Env: {name!: string, value: string}, _env: [..._Env], _env: [{name: \"A\", value: \"b\"}], " + uses + "}\npools: schema.#Pools & {a: _T, b: _T}\n", nil},
		"a function in an object": {
			"pools: schema.#Pools & {a: {#F: {in!: string, out: \"x-\" + in}, metadata: labels: x: (#F & {in: \"q\"}).out, " + specOf(`"i"`) + "}}\n", nil},
		"a parameter": {
			"_T: {#row: {cost!: string, image: *\"i\" | string}, " + specOf("#row.image") + "}\npools: schema.#Pools & {a: _T & {#row: image: \"j\"}}\n", []string{
				"pools.cue:6:25: pools.a: cost must be set"}},
		"a row of a table": {
			"#Row: {cost!: string, image: *\"i\" | string}\n_T: {_row: #Row, " + specOf("_row.image") + "}\n_rows: [string]: #Row\n_rows: {a: {}, b: cost: \"1\"}\npools: schema.#Pools & {for n, r in _rows {(n): _T & {_row: r}}}\n", []string{
				"pools.cue:8:9: pools.a: cost must be set"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, texts(Compile(repository(head+tc.cue), Options{}))); diff != "" {
				t.Error(diff)
			}
		})
	}
}
