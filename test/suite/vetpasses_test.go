// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/worker"
)

// vetted is a pool with many commonly used fields.
const vetted = `
apiVersion: corral.dev/v1alpha1
kind: RunnerPool
metadata: {name: linux, labels: {team: web}, annotations: {acme.example/owner: web}}
spec:
  connectionRef: {name: acme}
  runnerGroup: default
  runnerLabels: [linux, x64]
  scale:
    min: 0
    max: 10
    idle: 1
    schedules:
    - {name: day, timeZone: Europe/Berlin, weekly: {days: [Monday], from: "07:00", to: "19:00"}, scale: {idle: 2}}
    - {name: night, cron: {schedule: "0 20 * * *", duration: 8h}, scale: {max: 2}}
  deadlines: {startup: 5m, connect: 1m}
  update: {strategy: RollingUpdate, maxSurge: 25%, maxUnavailable: 1}
  template:
    metadata: {labels: {app: runner}, annotations: {acme.example/scrape: "true"}}
    spec:
      serviceAccountName: default
      nodeSelector: {kubernetes.io/os: linux}
      tolerations: [{key: gpu, operator: Exists, effect: NoSchedule}, {key: spot, operator: Equal, value: "true", effect: NoExecute, tolerationSeconds: 30}]
      securityContext: {runAsUser: 1001, fsGroup: 1001}
      terminationGracePeriodSeconds: 30
      imagePullSecrets: [{name: registry}]
      topologySpreadConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: runner}}}]
      initContainers:
      - {name: prepare, image: "busybox:1", command: [cp, -r, /a, /b], volumeMounts: [{name: tools, mountPath: /b}]}
      - name: docker
        image: docker:dind
        restartPolicy: Always
        ports: [{name: docker, containerPort: 2375, protocol: TCP}]
        startupProbe: {exec: {command: [docker, info]}, periodSeconds: 1, failureThreshold: 30}
        livenessProbe: {grpc: {port: 2375}}
        securityContext: {privileged: true}
      containers:
      - name: runner
        image: ghcr.io/actions/actions-runner:2.330.0
        command: [/home/runner/run.sh]
        env:
        - {name: A, value: b}
        - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
        - {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}
        - {name: TOKEN, valueFrom: {secretKeyRef: {name: tokens, key: npm}}}
        envFrom: [{prefix: X_, configMapRef: {name: settings}}]
        resources: {requests: {cpu: "1", memory: 1Gi}, limits: {cpu: "2", memory: 2Gi}}
        volumeMounts: [{name: work, mountPath: /work, subPath: a}, {name: tools, mountPath: /tools, readOnly: true}]
        readinessProbe: {httpGet: {path: /, port: 8080}, successThreshold: 2}
        lifecycle: {preStop: {exec: {command: [sleep, "1"]}}}
      volumes:
      - {name: work, emptyDir: {sizeLimit: 1Gi}}
      - {name: tools, persistentVolumeClaim: {claimName: tools}}
      - {name: settings, configMap: {name: settings, items: [{key: a, path: a}]}}
`

// odd contains values that users write by mistake, and values that are valid in other fields.
var odd = []any{
	"", "A_b", "a b", "-a", "a/b", "UPPER", "1", "1.5", "16GiB", "8Gi", "500m", "-1", "10%", "Always", "Exists", "Equal", "../a", "/work", "runner", "work", "linux",
	strings.Repeat("a", 64), strings.Repeat("b", 254), "07:00", "24:00", "5m", "0 7 * * *", "Mars/Phobos", true, false, int64(0), int64(-1), int64(1), int64(70000), int64(5), nil,
	map[string]any{}, []any{}, map[string]any{"a": "b"}, []any{"a"},
}

// known are refusals of an API server that nothing but the cluster can know, with the reason.
var known = map[string]string{
	"serviceaccount": "which ServiceAccounts there are only the cluster knows",
	"PriorityClass":  "which PriorityClasses there are only the cluster knows",
}

// If vet accepts a pool, an API server accepts the pool and the pod of its runners.
func TestWhatVetPassesTheClusterTakes(t *testing.T) {
	t.Parallel()
	n := 200
	if asked := os.Getenv("CORRAL_MUTATIONS"); asked != "" {
		n, _ = strconv.Atoi(asked)
	}
	must(t, shared.Cluster.CreateNamespace(t.Context(), "vetted"))
	passed, disagreed := 0, map[string]int{}
	for seed := range uint64(n) {
		r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
		object := map[string]any{}
		must(t, yaml.Unmarshal([]byte(vetted), &object))
		what := "nothing"
		if seed > 0 {
			what = change(r, object)
		}
		text, err := json.Marshal(object)
		must(t, err)
		result := compile.Compile(compile.Files{"a.cue": append([]byte("package pools\n\npool: "), text...)}, compile.Options{Check: worker.Check})
		if len(result.Diagnostics) > 0 {
			if seed == 0 {
				t.Fatal(result.Diagnostics)
			}
			continue
		}
		passed++
		if err := takes(t, result.Objects[0].Manifest.DeepCopy()); err != nil {
			why := slices.IndexFunc(slices.Sorted(maps.Keys(known)), func(word string) bool { return strings.Contains(err.Error(), word) })
			if why < 0 {
				t.Errorf("seed %d: %s: vet passes it, and the API server says: %v", seed, what, err)
				continue
			}
			disagreed[slices.Sorted(maps.Keys(known))[why]]++
		}
	}
	if passed < n/6 {
		t.Errorf("only %d of %d were passed", passed, n)
	}
	t.Logf("%d of %d passed; refused nevertheless: %v", passed, n, disagreed)
}

// Before a merge, vet reports pools whose max exceeds the quota of their namespace, or whose pods it does not
// allow at all.
func TestVetTellsOfPoolsThatDoNotFitTheirNamespace(t *testing.T) {
	t.Parallel()
	const namespace = "cramped"
	must(t, shared.Cluster.CreateNamespace(t.Context(), namespace))
	must(t, shared.Cluster.Apply(t.Context(), []byte(`
apiVersion: v1
kind: ResourceQuota
metadata: {name: compute, namespace: cramped}
spec: {hard: {requests.cpu: "10", requests.memory: 64Gi}}
---
apiVersion: v1
kind: LimitRange
metadata: {name: small, namespace: cramped}
spec: {limits: [{type: Container, max: {memory: 2Gi}, defaultRequest: {cpu: 500m}}]}
`)))
	folder := t.TempDir()
	for name, resources := range map[string]string{"fits": `requests: memory: "1Gi"`, "many": `requests: cpu: "2"`, "big": `limits: memory: "4Gi"`} {
		text := fmt.Sprintf("package pools\n%s: {apiVersion: %q, kind: \"RunnerPool\", metadata: {name: %q, namespace: %q}, spec: {connectionRef: name: \"acme\", scale: max: 8, "+
			"template: spec: containers: [{name: \"runner\", image: \"x\", resources: %s}]}}\n", name, "corral.dev/v1alpha1", name, namespace, resources)
		must(t, os.WriteFile(filepath.Join(folder, name+".cue"), []byte(text), 0o600))
	}
	out := shared.Corral(t, "vet", "--live", folder)
	for _, want := range []string{
		"many.cue:2:154: many.spec.scale.max: warning: namespace cramped: 8 runners need 16 of requests.cpu, and ResourceQuota compute has 10: at most 5 fit",
		"big.spec.template: warning: namespace cramped: LimitRange small: container runner has a limit of 4Gi of memory, at most 2Gi is allowed",
		"ok: 3 pools",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q isn't in:\n%s", want, out)
		}
	}
	if strings.Contains(out, "fits.spec") {
		t.Errorf("a pool that fits is told of:\n%s", out)
	}
}

// takes asks the API server in a dry run whether it accepts a pool and the pod of its runners.
func takes(t *testing.T, manifest *unstructured.Unstructured) error {
	t.Helper()
	manifest.SetNamespace("vetted")
	if err := shared.Client.Create(t.Context(), manifest.DeepCopy(), client.DryRunAll); err != nil {
		return err
	}
	pool := &v1alpha1.RunnerPool{}
	must(t, v1alpha1.FromUnstructured(manifest.Object, pool))
	pod, err := podspec.Specimen(pool)
	if err != nil {
		return err
	}
	return shared.Client.Create(t.Context(), pod, client.DryRunAll)
}

// change changes one random value below spec or metadata, and returns its path.
func change(r *rand.Rand, object map[string]any) string {
	var places []func() string
	walk(object, "", func(path string, set func(any), value any) {
		if path == "apiVersion" || path == "kind" || path == "spec" || path == "metadata" {
			return
		}
		places = append(places, func() string {
			list, isList := value.([]any)
			if isList && len(list) > 0 && r.IntN(2) == 0 {
				set(append(slices.Clone(list), list[r.IntN(len(list))]))
				return path + " has an element twice"
			}
			to := odd[r.IntN(len(odd))]
			set(to)
			return fmt.Sprintf("%s is %#v", path, to)
		})
	})
	return places[r.IntN(len(places))]()
}

// walk visits each value in a fixed order, with a function that replaces it.
func walk(value any, path string, visit func(path string, set func(any), value any)) {
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			at := strings.TrimPrefix(path+"."+key, ".")
			visit(at, func(to any) {
				if to == nil {
					delete(v, key)
				} else {
					v[key] = to
				}
			}, v[key])
			walk(v[key], at, visit)
		}
	case []any:
		for i := range v {
			at := fmt.Sprintf("%s[%d]", path, i)
			visit(at, func(to any) {
				if to != nil {
					v[i] = to
				}
			}, v[i])
			walk(v[i], at, visit)
		}
	}
}
