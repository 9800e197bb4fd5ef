// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package podspec_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/internal/podspec"
)

var runner = podspec.Runner{Namespace: "ci", Name: "linux-abc", Pool: "linux", Revision: "linux-0123456789", UID: "u1"}

func TestBuild(t *testing.T) {
	pod, err := podspec.Build(runner, []byte(`{
		"metadata": {"labels": {"team": "a", "corral.dev/pool": "stolen"}, "annotations": {"note": "x"}},
		"spec": {"serviceAccountName": "ci", "containers": [
			{"name": "dind", "image": "d"},
			{"name": "runner", "image": "r", "env": [{"name": "ACTIONS_RUNNER_INPUT_JITCONFIG", "value": "mine"}, {"name": "A", "value": "1"}]}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := yaml.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	const want = `apiVersion: v1
kind: Pod
metadata:
  annotations:
    corral.dev/runner-uid: u1
    note: x
  labels:
    corral.dev/pool: linux
    corral.dev/revision: linux-0123456789
    corral.dev/runner: linux-abc
    team: a
  name: linux-abc
  namespace: ci
spec:
  automountServiceAccountToken: false
  containers:
  - image: d
    name: dind
    resources: {}
  - env:
    - name: A
      value: "1"
    - name: ACTIONS_RUNNER_INPUT_JITCONFIG
      valueFrom:
        secretKeyRef:
          key: jitToken
          name: linux-abc-jit
    image: r
    name: runner
    resources: {}
  restartPolicy: Never
  serviceAccountName: ci
status: {}
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("pod (-want +got):\n%s", diff)
	}
}

func TestBuildRefusesWithTheField(t *testing.T) {
	cases := map[string]struct{ template, want string }{
		"unknown field":               {`{"spec": {"containers": [{"name": "runner", "imge": "r"}]}}`, `unknown field "spec.containers[0].imge"`},
		"wrong type":                  {`{"spec": {"containers": "runner"}}`, "containers"},
		"no container":                {`{"spec": {"containers": [{"name": "main"}]}}`, `a container named "runner" is required`},
		"restarts":                    {`{"spec": {"restartPolicy": "Always", "containers": [{"name": "runner"}]}}`, "restartPolicy: must be Never"},
		"not even object":             {`[]`, "spec.template"},
		"a quantity that takes hours": {`{"spec": {"containers": [{"name": "runner", "resources": {"limits": {"cpu": "1e-2147483647"}}}]}}`, "spec.template.spec.containers[0].resources.limits.cpu: "},
		"such a number":               {`{"spec": {"overhead": {"cpu": 1e-2147483647}, "containers": []}}`, "spec.template.spec.overhead.cpu: "},
		"such a one written over":     {`{"spec": {"overhead": {"cpu": "1e-2147483647"}}, "spec": {"containers": []}}`, "a container named"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := podspec.Build(runner, []byte(tc.template)); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want it to say %q", err, tc.want)
			}
		})
	}
}

func TestCheckSecrets(t *testing.T) {
	cases := map[string]struct{ spec, want string }{
		"own and foreign":      {`"volumes": [{"name": "v", "secret": {"secretName": "team-cache"}}], "imagePullSecrets": [{"name": "pull"}]`, ""},
		"env of a connection":  {`"initContainers": [{"name": "i", "env": [{"name": "T", "valueFrom": {"secretKeyRef": {"name": "github", "key": "github_token"}}}]}]`, "spec.template.spec.initContainers[0].env[0]"},
		"envFrom":              {`"initContainers": [{"name": "i", "envFrom": [{"secretRef": {"name": "github"}}]}]`, "initContainers[0].envFrom[0]"},
		"volume":               {`"volumes": [{"name": "v", "secret": {"secretName": "github"}}]`, "volumes[0]"},
		"projection":           {`"volumes": [{"name": "w", "emptyDir": {}}, {"name": "v", "projected": {"sources": [{"secret": {"name": "github"}}]}}]`, "volumes[1]"},
		"csi":                  {`"volumes": [{"name": "v", "csi": {"driver": "d", "nodePublishSecretRef": {"name": "github"}}}]`, "volumes[0]"},
		"another runner's JIT": {`"volumes": [{"name": "v", "secret": {"secretName": "linux-xyz-jit"}}]`, "named like a runner's registration"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod, err := podspec.Build(runner, []byte(`{"spec": {"containers": [{"name": "runner"}], `+tc.spec+`}}`))
			if err != nil {
				t.Fatal(err)
			}
			err = podspec.CheckSecrets(pod, []string{"github"})
			if (err == nil) != (tc.want == "") || (err != nil && !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want %q", err, tc.want)
			}
		})
	}
}

func TestHashIsOfTheContent(t *testing.T) {
	hash := func(s string) string {
		h, err := podspec.Hash([]byte(s))
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	if a, b := hash(`{"a": 1, "b": {"c": 2}}`), hash(`{"b":{"c":2},"a":1}`); a != b {
		t.Errorf("formatting changes the hash: %s, %s", a, b)
	}
	if a, b := hash(`{"a": 1}`), hash(`{"a": 2}`); a == b {
		t.Errorf("content does not change the hash: %s", a)
	}
}
