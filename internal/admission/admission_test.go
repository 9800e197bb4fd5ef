// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// pool is a RunnerPool with more of a spec, and a pod with more than its container, which has more, too.
func pool(spec, pod, container string) string {
	return `{apiVersion: corral.dev/v1alpha1, kind: RunnerPool, metadata: {name: linux}, spec: {connectionRef: {name: acme}, ` + spec +
		` template: {spec: {` + pod + ` containers: [{name: runner, image: "a:1", ` + container + `}]}}}}`
}

// What an API server says of these stands in test/suite, which asks one.
func TestWhatPeopleBreakIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		object string
		want   []string
	}{
		"nothing":              {pool("", "", ""), nil},
		"a probe of gRPC":      {pool("", "", `livenessProbe: {grpc: {port: 80}}`), nil},
		"a kind of others":     {`{apiVersion: v1, kind: Secret}`, nil},
		"a version":            {`{apiVersion: corral.dev/v2, kind: RunnerPool}`, []string{"apiVersion"}},
		"a name":               {`{apiVersion: corral.dev/v1alpha1, kind: RunnerPolicy, metadata: {name: A_b}, spec: {mode: Enforce}}`, []string{"metadata.name"}},
		"a schedule twice":     {pool(`scale: {schedules: [{name: a, cron: {start: "0 7 * * *", duration: 1h}, scale: {max: 1}}, {name: a, cron: {start: "0 8 * * *", duration: 1h}, scale: {max: 1}}]},`, "", ""), []string{"spec.scale.schedules[1]"}},
		"labels twice":         {pool("labels: [a, a],", "", ""), []string{"spec.labels[1]"}},
		"no progress":          {pool("update: {maxSurge: 0, maxUnavailable: 0},", "", ""), []string{"spec.update"}},
		"a label's key":        {pool("", `nodeSelector: {"a b": c},`, ""), []string{"spec.template.spec.nodeSelector"}},
		"containers twice":     {pool("", `initContainers: [{name: runner, image: b}],`, ""), []string{"spec.template.spec.containers[0].name"}},
		"no image":             {pool("", `initContainers: [{name: a}],`, ""), []string{"spec.template.spec.initContainers[0].image"}},
		"a mount of nothing":   {pool("", "", `volumeMounts: [{name: work, mountPath: /a}]`), []string{"spec.template.spec.containers[0].volumeMounts[0].name"}},
		"two sources":          {pool("", `volumes: [{name: a, emptyDir: {}, hostPath: {path: /}}],`, ""), []string{"spec.template.spec.volumes[0]"}},
		"two ports of a name":  {pool("", "", `ports: [{name: a, containerPort: 1}, {name: a, containerPort: 2}]`), []string{"spec.template.spec.containers[0].ports[1].name"}},
		"a request over limit": {pool("", "", `resources: {requests: {cpu: 2}, limits: {cpu: 1}}`), []string{"spec.template.spec.containers[0].resources.requests[cpu]"}},
		"an unknown resource":  {pool("", "", `resources: {limits: {gpu: 1}}`), []string{"spec.template.spec.containers[0].resources.limits[gpu]"}},
		"a probe of nothing":   {pool("", "", `readinessProbe: {periodSeconds: 1}`), []string{"spec.template.spec.containers[0].readinessProbe"}},
		"a toleration":         {pool("", `tolerations: [{key: a, operator: Exists, value: b}],`, ""), []string{"spec.template.spec.tolerations[0].value"}},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := yaml.YAMLToJSON([]byte(tc.object))
			if err != nil {
				t.Fatal(err)
			}
			object := map[string]any{}
			if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &object); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, e := range Check(object) {
				got = append(got, e.Field)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%v\n%s", Check(object), diff)
			}
		})
	}
}
