// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/internal/compile"
)

func TestRegoFilesBecomeOnePolicy(t *testing.T) {
	const pools = `package pools
import "corral.dev/schema@v0"
pools: schema.#Pools & {a: spec: {connectionRef: name: "c", template: spec: containers: [{name: "runner", image: "i"}]}}
`
	const module = `module: "example.com/pools@v0"
language: version: "v0.14.0"
deps: "corral.dev/schema@v0": v: "v0.1.0"
`
	base := compile.Files{"cue.mod/module.cue": []byte(module), "pools.cue": []byte(pools)}
	cases := map[string]struct {
		files       compile.Files
		path        string
		name        string
		want        map[string]any
		diagnostics []string
	}{
		"none": {},
		"modules and the data beside them": {
			files: compile.Files{
				"policies/limits.rego": []byte("package corral.scaling\n"), "policies/limits_test.rego": []byte("package x\n"),
				"policies/data.yaml": []byte("teams: {a: 3}\n"), "team/more.rego": []byte("package more\n"), "elsewhere/data.json": []byte("no"),
			},
			want: map[string]any{
				"metadata": map[string]any{"name": "repository"},
				"spec": map[string]any{
					"modules": map[string]any{"policies/limits.rego": "package corral.scaling\n", "team/more.rego": "package more\n"},
					"data":    map[string]any{"teams": map[string]any{"a": float64(3)}},
				},
			},
		},
		"of the folder that is compiled, named by who asks": {
			files: compile.Files{"policies/limits.rego": []byte("package a\n"), "pools/here.rego": []byte("package b\n"), "pools/p.cue": []byte(pools)},
			path:  "pools", name: "source",
			want: map[string]any{
				"metadata": map[string]any{"name": "source"},
				"spec":     map[string]any{"modules": map[string]any{"pools/here.rego": "package b\n"}},
			},
		},
		"tests alone are no policy": {files: compile.Files{"p/a_test.rego": []byte("package a\n")}},
		"data that collides": {
			files: compile.Files{"a/x.rego": []byte("package a\n"), "a/data.json": []byte(`{"k": 1}`), "b/y.rego": []byte("package b\n"), "b/data.yml": []byte("k: 2\n")},
			diagnostics: []string{
				"b/data.yml:1:1: data.k is in a/data.json too; all files named data.* of a tree share one root",
			},
		},
		"data that is none": {
			files:       compile.Files{"a/x.rego": []byte("package a\n"), "a/data.json": []byte(`[]`)},
			diagnostics: []string{"a/data.json:1:1: data of policies must be a JSON or YAML object: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value of type map[string]interface {}"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			files := compile.Files{}
			for _, m := range []compile.Files{base, tc.files} {
				for f, data := range m {
					files[f] = data
				}
			}
			result := compile.Compile(files, compile.Options{Path: tc.path, PolicyName: tc.name})
			var complaints []string
			for _, d := range result.Diagnostics {
				complaints = append(complaints, compile.Format(d))
			}
			if diff := cmp.Diff(tc.diagnostics, complaints); diff != "" {
				t.Fatalf("diagnostics (-want +got):\n%s", diff)
			}
			var got map[string]any
			for _, o := range result.Objects {
				if o.Manifest.GetKind() == "RunnerPolicy" {
					got = map[string]any{"metadata": o.Manifest.Object["metadata"], "spec": o.Manifest.Object["spec"]}
				}
			}
			if len(tc.diagnostics) == 0 {
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("policy (-want +got):\n%s", diff)
				}
			}
		})
	}
}
