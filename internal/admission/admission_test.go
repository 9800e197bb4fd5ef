// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/charts"
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
		"a schedule twice":     {pool(`scale: {schedules: [{name: a, cron: {schedule: "0 7 * * *", duration: 1h}, scale: {max: 1}}, {name: a, cron: {schedule: "0 8 * * *", duration: 1h}, scale: {max: 1}}]},`, "", ""), []string{"spec.scale.schedules"}},
		"unknown fields":       {pool("scale: {mx: 1, schedules: [{name: a, zon: b, cron: {schedule: \"0 7 * * *\", duration: 1h}, scale: {max: 1}}]}, runnerLables: [a],", "", ""), []string{"spec.runnerLables", "spec.scale.mx", "spec.scale.schedules[0].zon"}},
		"labels twice":         {pool("runnerLabels: [a, a],", "", ""), []string{"spec.runnerLabels[1]"}},
		"rest of a scale set":  {pool("rest: {placeholder: Always},", "", ""), []string{"spec"}},
		"actions of a push":    {pool("demand: {boosts: [{name: a, event: push, actions: [created]}]},", "", ""), []string{"spec.demand.boosts[0]"}},
		"too large":            {pool("", fmt.Sprintf("hostname: %s,", strings.Repeat("a", v1alpha1.MaxPoolBytes)), ""), []string{"spec", "spec.template.spec.hostname"}},
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
			if diff := cmp.Diff(tc.want, refused(t, tc.object)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// refused returns the fields that are wrong.
func refused(t *testing.T, object string) (fields []string) {
	t.Helper()
	text, err := yaml.YAMLToJSON([]byte(object))
	if err != nil {
		t.Fatal(err)
	}
	parsed := map[string]any{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(text, &parsed); err != nil {
		t.Fatal(err)
	}
	for _, e := range Check(parsed) {
		fields = append(fields, e.Field)
	}
	return fields
}

// Each rule of pods by itself: what breaks it is refused at its field, and nothing else is.
func TestEachRuleOfPods(t *testing.T) {
	const volume = `volumes: [{name: v, emptyDir: {}}],`
	for want, broken := range map[string]string{
		"serviceAccountName":                       `serviceAccountName: A_b,`,
		"priorityClassName":                        `priorityClassName: A_b,`,
		"nodeName":                                 `nodeName: A_b,`,
		"hostname":                                 `hostname: a.b,`,
		"subdomain":                                `subdomain: a.b,`,
		"activeDeadlineSeconds":                    `activeDeadlineSeconds: 0,`,
		"imagePullSecrets[0].name":                 `imagePullSecrets: [{name: A_b}],`,
		"securityContext.runAsUser":                `securityContext: {runAsUser: -1},`,
		"securityContext.runAsGroup":               `securityContext: {runAsGroup: -1},`,
		"securityContext.fsGroup":                  `securityContext: {fsGroup: -1},`,
		"topologySpreadConstraints[1].topologyKey": `topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: DoNotSchedule}, {maxSkew: 2, topologyKey: a, whenUnsatisfiable: DoNotSchedule}],`,
		"topologySpreadConstraints[0].maxSkew":     `topologySpreadConstraints: [{maxSkew: 0, topologyKey: a, whenUnsatisfiable: DoNotSchedule}],`,
		"topologySpreadConstraints[0].topologyKey": `topologySpreadConstraints: [{maxSkew: 1, whenUnsatisfiable: DoNotSchedule}],`,
		"tolerations[0].key":                       `tolerations: [{key: "a b", operator: Exists}],`,
		"tolerations[0].operator":                  `tolerations: [{operator: Equal, value: b}],`,
		"tolerations[0].value":                     `tolerations: [{key: a, value: "b c"}],`,
		"tolerations[0].effect":                    `tolerations: [{key: a, operator: Exists, effect: NoSchedule, tolerationSeconds: 1}],`,
		"volumes[0].name":                          `volumes: [{emptyDir: {}}],`,
		"volumes[1].name":                          `volumes: [{name: v}, {name: v}],`,
		"volumes[0].emptyDir.sizeLimit":            `volumes: [{name: v, emptyDir: {sizeLimit: "-1"}}],`,
		"initContainers[0].name":                   `initContainers: [{name: a.b, image: b}],`,
		"initContainers[0].livenessProbe":          `initContainers: [{name: a, image: b, livenessProbe: {exec: {command: [a]}}}],`,
		"initContainers[0].lifecycle":              `initContainers: [{name: a, image: b, lifecycle: {preStop: {exec: {command: [a]}}}}],`,
	} {
		if got := refused(t, pool("", broken, "")); !cmp.Equal(got, []string{"spec.template.spec." + want}) {
			t.Errorf("%s\nis refused at %v, want %s", broken, got, want)
		}
	}
	for want, broken := range map[string]string{
		"image":                                      `image: " a"`,
		"securityContext.runAsUser":                  `securityContext: {runAsUser: -1}`,
		"securityContext.runAsGroup":                 `securityContext: {runAsGroup: -1}`,
		"securityContext.allowPrivilegeEscalation":   `securityContext: {privileged: true, allowPrivilegeEscalation: false}`,
		"ports[0].containerPort":                     `ports: [{containerPort: 70000}]`,
		"ports[0].name":                              `ports: [{name: averylongnameofaport, containerPort: 1}]`,
		"ports[0].hostPort":                          `ports: [{containerPort: 1, hostPort: 70000}]`,
		"env[0].name":                                `env: [{value: a}]`,
		"env[1].name":                                `env: [{name: a}, {name: "a=b"}]`,
		"env[0].valueFrom":                           `env: [{name: a, value: b, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]`,
		"env[1].valueFrom":                           `env: [{name: a}, {name: a, valueFrom: {}}]`,
		"env[0].valueFrom.secretKeyRef.name":         `env: [{name: a, valueFrom: {secretKeyRef: {key: k}}}]`,
		"env[1].valueFrom.secretKeyRef.name":         `env: [{name: a}, {name: a, valueFrom: {secretKeyRef: {name: A_b, key: k}}}]`,
		"env[0].valueFrom.secretKeyRef.key":          `env: [{name: a, valueFrom: {secretKeyRef: {name: s}}}]`,
		"env[1].valueFrom.secretKeyRef.key":          `env: [{name: a}, {name: a, valueFrom: {secretKeyRef: {name: s, key: "a b"}}}]`,
		"env[0].valueFrom.configMapKeyRef.name":      `env: [{name: a, valueFrom: {configMapKeyRef: {key: k}}}]`,
		"env[0].valueFrom.configMapKeyRef.key":       `env: [{name: a, valueFrom: {configMapKeyRef: {name: s}}}]`,
		"envFrom[0]":                                 `envFrom: [{prefix: a}]`,
		"envFrom[0].secretRef.name":                  `envFrom: [{secretRef: {name: A_b}}]`,
		"envFrom[0].configMapRef.name":               `envFrom: [{configMapRef: {}}]`,
		"volumeMounts[0].name":                       `volumeMounts: [{mountPath: /a}]`,
		"volumeMounts[0].mountPath":                  `volumeMounts: [{name: v}]`,
		"volumeMounts[1].mountPath":                  `volumeMounts: [{name: v, mountPath: /a}, {name: v, mountPath: /a}]`,
		"volumeMounts[0].subPath":                    `volumeMounts: [{name: v, mountPath: /a, subPath: a/../b}]`,
		"volumeMounts[1].subPath":                    `volumeMounts: [{name: v, mountPath: /a}, {name: v, mountPath: /b, subPath: /b}]`,
		"volumeMounts[0].subPathExpr":                `volumeMounts: [{name: v, mountPath: /a, subPath: a, subPathExpr: b}]`,
		"resources.requests[a.b/gpu]":                `resources: {requests: {a.b/gpu: 1}}`,
		"resources.requests[cpu]":                    `resources: {requests: {cpu: -1}}`,
		"resources.limits[a b/c]":                    `resources: {limits: {"a b/c": 1}}`,
		"lifecycle.preStop":                          `lifecycle: {preStop: {}}`,
		"lifecycle.postStart.exec.command":           `lifecycle: {postStart: {exec: {}}}`,
		"livenessProbe":                              `livenessProbe: {exec: {command: [a]}, tcpSocket: {port: 1}}`,
		"livenessProbe.periodSeconds":                `livenessProbe: {exec: {command: [a]}, periodSeconds: -1}`,
		"livenessProbe.successThreshold":             `livenessProbe: {exec: {command: [a]}, successThreshold: 2}`,
		"startupProbe.successThreshold":              `startupProbe: {exec: {command: [a]}, successThreshold: 2}`,
		"startupProbe.terminationGracePeriodSeconds": `startupProbe: {exec: {command: [a]}, terminationGracePeriodSeconds: 0}`,
		"readinessProbe.httpGet.port":                `readinessProbe: {httpGet: {port: 0}}`,
		"readinessProbe.tcpSocket.port":              `readinessProbe: {tcpSocket: {port: "a--b"}}`,
		"readinessProbe.grpc.port":                   `readinessProbe: {grpc: {port: 70000}}`,
	} {
		if got := refused(t, pool("", volume, broken)); !cmp.Equal(got, []string{"spec.template.spec.containers[0]." + want}) {
			t.Errorf("%s\nis refused at %v, want %s", broken, got, want)
		}
	}
	for want, broken := range map[string]string{"labels": `labels: {a: "b c"}`, "annotations": `annotations: {"a b": c}`} {
		text := strings.Replace(pool("", "", ""), "template: {", "template: {metadata: {"+broken+"}, ", 1)
		if got := refused(t, text); !cmp.Equal(got, []string{"spec.template.metadata." + want}) {
			t.Errorf("%s\nis refused at %v, want %s", broken, got, want)
		}
	}
}

// A definition that nobody finds would let any object of its kind pass.
func TestEachDefinitionIsFound(t *testing.T) {
	files, err := charts.CRDs.ReadDir(definitions)
	if err != nil || len(files) != len(Kinds()) {
		t.Errorf("%d files (%v) and %d kinds, %v", len(files), err, len(Kinds()), Kinds())
	}
	for kind, read := range byKind() {
		if _, err := read(); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}
