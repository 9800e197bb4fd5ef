// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/wording"
)

// The mistakes of a pod are named at the field of the pool that declares it, in the words of an API server. That no mistake is missing, and none
// invented, is compared with a real one in test/suite.
func TestMistakesInPodsAreNamedWhereTheyAreDeclared(t *testing.T) {
	const nested = "spec.template.spec."
	for name, tc := range map[string]struct {
		spec, pod, container string
		want                 []string
	}{
		"nothing":            {container: `livenessProbe: {grpc: {port: 80}}`},
		"a label's key":      {pod: `nodeSelector: {"a b": c},`, want: []string{nested + `nodeSelector: invalid value "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`}},
		"containers twice":   {pod: `initContainers: [{name: runner, image: b}],`, want: []string{nested + "initContainers[0].name: runner is there twice"}},
		"no image":           {pod: `initContainers: [{name: a}],`, want: []string{nested + "initContainers[0].image: must be set"}},
		"a mount of nothing": {container: `volumeMounts: [{name: work, mountPath: /a}]`, want: []string{nested + `containers[0].volumeMounts[0].name: there is no volume "work" in volumes of the pod: add it`}},
		"an unknown resource": {container: `resources: {limits: {gpu: 1}}`, want: []string{
			nested + `containers[0].resources.limits[gpu]: invalid value "gpu": must be a standard resource for containers`,
			nested + `containers[0].resources.limits[gpu]: invalid value "gpu": must be a standard resource type or fully qualified`}},
		"overhead":                {pod: `overhead: {cpu: 1},`, want: []string{nested + "overhead: must not be set without runtimeClassName, whose RuntimeClass declares it"}},
		"a container of the mode": {spec: `containerMode: {type: Docker},`, pod: `initContainers: [{name: a, image: b, ports: [{containerPort: 0}]}],`, want: []string{nested + "initContainers[0].ports[0].containerPort: must be set"}},
		"no runner can be made": {pod: `restartPolicy: Always, initContainers: [{name: b, image: " b"}],`, want: []string{
			nested + "restartPolicy: must be Never, because a runner takes only one job; found Always",
			nested + `initContainers[0].image: invalid value " b": must not have leading or trailing whitespace`}},
	} {
		t.Run(name, func(t *testing.T) {
			object, got := map[string]any{}, []string(nil)
			text := "apiVersion: corral.dev/v1alpha1\nkind: RunnerPool\nmetadata: {name: linux}\nspec: {connectionRef: {name: acme}, " + tc.spec +
				" template: {spec: {" + tc.pod + "\n" + `containers: [{name: runner, image: "a:1", ` + tc.container + `}]}}}`
			if err := yaml.Unmarshal([]byte(text), &object); err != nil {
				t.Fatal(err)
			}
			for _, e := range Check(object) {
				got = append(got, e.Field+": "+wording.Refusal(e))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Several objects of a package are checked at once. Each refusal is reported for its own object, and the others are kept.
func TestEachObjectOfAPackageHasItsOwnRefusals(t *testing.T) {
	source, kept, refused := "package pools\n\nimport \"corral.dev/schema\"\n\npools: schema.#Pools\n", []string(nil), []string(nil)
	for i := range 40 {
		name, mount := fmt.Sprintf("p%02d", i), ""
		if i%2 == 1 {
			mount = fmt.Sprintf(`volumeMounts: [{name: "v%d", mountPath: "/a"}]`, i)
			refused = append(refused, fmt.Sprintf(`pools.%s.spec.template.spec.containers[0].volumeMounts[0].name: there is no volume "v%d" in volumes of the pod: add it`, name, i))
		} else {
			kept = append(kept, name)
		}
		source += fmt.Sprintf("pools: %s: spec: {connectionRef: name: \"acme\", template: spec: containers: [{name: \"runner\", image: \"a:1\", %s}]}\n", name, mount)
	}
	result := Compile(compile.Files{"pools.cue": []byte(source)}, compile.Options{})
	var got [2][]string
	for _, o := range result.Objects {
		got[0] = append(got[0], o.Manifest.GetName())
	}
	for _, d := range result.Diagnostics {
		got[1] = append(got[1], d.Path+": "+d.Message)
	}
	slices.Sort(got[1])
	if diff := cmp.Diff([2][]string{kept, refused}, got); diff != "" {
		t.Error(diff)
	}
}
