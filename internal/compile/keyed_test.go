// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile_test

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/corral-dev/corral/internal/compile"
)

const keyedBase = `package pools

import "corral.dev/schema@v0"

pools: schema.#Pools

#Base: schema.#RunnerPool & {
	spec: {
		connectionRef: name: "acme"
		scale: max: 5
	}
	#containers: runner: {image: string | *"ghcr.io/acme/runner:1", command: ["/home/runner/run.sh"]}
	#volumes: data: emptyDir: {}
	#schedules: night: schema.#Schedule & {timeZone: "UTC", weekly: {from: "20:00", to: "21:00"}, scale: min: 1}
}
`

// Two files of a package add to the same list of a shared definition, and change an item of it.
func TestItemsOfListsAreDeclaredByName(t *testing.T) {
	files := compile.Files{
		"base.cue": []byte(keyedBase),
		"a.cue": []byte(`package pools

pools: linux: #Base & {
	#containers: runner: image: "ghcr.io/acme/runner:2"
	#schedules: day: {timeZone: "UTC", weekly: {from: "08:00", to: "18:00"}, scale: min: 2}
	#boosts: push: {event: "push", idle: 1}
}
`),
		"b.cue": []byte(`package pools

pools: linux: #containers: sidecar: image: "ghcr.io/acme/proxy:1"
`),
	}
	result := compile.Compile(files, compile.Options{})
	if len(result.Diagnostics) > 0 || len(result.Objects) != 1 {
		t.Fatalf("%+v", result)
	}
	spec := result.Objects[0].Manifest.Object
	for path, want := range map[string]string{
		"spec.template.spec.containers": "runner sidecar", "spec.template.spec.volumes": "data",
		"spec.scale.schedules": "day night", "spec.demand.boosts": "push",
	} {
		items, _, err := unstructured.NestedSlice(spec, strings.Split(path, ".")...)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, item := range items {
			names = append(names, item.(map[string]any)["name"].(string))
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
	containers, _, _ := unstructured.NestedSlice(spec, "spec", "template", "spec", "containers")
	if image := containers[0].(map[string]any)["image"]; image != "ghcr.io/acme/runner:2" {
		t.Errorf("the runner has image %v", image)
	}
}

func TestMistakesInItemsByNameHaveTheirPlace(t *testing.T) {
	files := compile.Files{"base.cue": []byte(keyedBase), "a.cue": []byte(`package pools

pools: linux: #Base & {
	#containers: runner: imagee: "x"
}
`)}
	result := compile.Compile(files, compile.Options{})
	const want = "a.cue:4:23: pools.linux.#containers.runner.imagee: field not allowed; did you mean image?"
	if len(result.Diagnostics) != 1 || compile.Format(result.Diagnostics[0]) != want {
		t.Errorf("got %+v, want %s", result.Diagnostics, want)
	}
}
