// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sized declares pools by a table, in a package of two files.
var sized = map[string]string{
	"pools.cue": `package pools

import "corral.dev/schema@v0"

_sizes: large: {
	max: 4
	cpu: "16"
}
pools: schema.#Pools & {
	for name, size in _sizes {
		(name): spec: {
			connectionRef: name: "acme"
			scale: max: size.max
			template: #Template & {_cpu: size.cpu}
		}
	}
	other: {
		metadata: annotations: "corral.dev/owner": "a team"
		spec: {
			connectionRef: name: "acme"
			template: #Template & {_cpu: "1"}
		}
	}
}
`,
	"template.cue": `package pools

#Template: {
	_cpu: string
	spec: containers: [{
		name:  "runner"
		image: "runner:1"
		resources: requests: cpu: _cpu
	}]
}
`,
}

func TestFieldsAreFoundWhereTheirValuesAreWritten(t *testing.T) {
	files := Files{"cue.mod/module.cue": []byte("module: \"example.com\"\nlanguage: version: \"v0.17.0\"\n")}
	for name, text := range sized {
		files[name] = []byte(text)
	}
	r := Compile(files, Options{Positions: true})
	if len(r.Diagnostics) > 0 {
		t.Fatal(r.Diagnostics)
	}
	got := map[string]string{}
	for _, o := range r.Objects {
		o.Rename(func(file string) string { return "repo/" + file })
		for _, path := range []string{
			"metadata.name", `metadata.annotations["corral.dev/owner"]`, "spec.connectionRef.name", "spec.scale.max", "spec.runnerGroup",
			"spec.template.spec.containers[0].image", "spec.template.spec.containers[0].resources.requests.cpu",
			"spec.template.spec.containers[0].env[0].value",
		} {
			at := o.PositionOf(path)
			got[o.Manifest.GetName()+" "+path] = fmt.Sprintf("%s:%d", strings.TrimPrefix(at.File, "repo/"), at.Line)
		}
	}
	want := map[string]string{
		"large metadata.name":                                           "pools.cue:11",
		`large metadata.annotations["corral.dev/owner"]`:                "pools.cue:11",
		"large spec.connectionRef.name":                                 "pools.cue:12",
		"large spec.scale.max":                                          "pools.cue:6",
		"large spec.runnerGroup":                                        "pools.cue:11",
		"large spec.template.spec.containers[0].image":                  "template.cue:7",
		"large spec.template.spec.containers[0].resources.requests.cpu": "pools.cue:7",
		"large spec.template.spec.containers[0].env[0].value":           "pools.cue:14",
		"other metadata.name":                                           "pools.cue:17",
		`other metadata.annotations["corral.dev/owner"]`:                "pools.cue:18",
		"other spec.connectionRef.name":                                 "pools.cue:20",
		"other spec.scale.max":                                          "pools.cue:19",
		"other spec.runnerGroup":                                        "pools.cue:19",
		"other spec.template.spec.containers[0].image":                  "template.cue:7",
		"other spec.template.spec.containers[0].resources.requests.cpu": "pools.cue:21",
		"other spec.template.spec.containers[0].env[0].value":           "pools.cue:21",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestPositionsAreOnlyToldWhenAskedFor(t *testing.T) {
	files := Files{}
	for name, text := range sized {
		files[name] = []byte(text)
	}
	for _, o := range Compile(files, Options{}).Objects {
		if o.Positions != nil {
			t.Errorf("%s has %d positions", o.Manifest.GetName(), len(o.Positions))
		}
	}
}
