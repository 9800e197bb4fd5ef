// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package podspec_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/internal/podspec"
)

var runner = podspec.Runner{Namespace: "ci", Name: "linux-abc", Pool: "linux", Revision: "linux-0123456789", UID: "u1"}

func TestBuild(t *testing.T) {
	pod, err := podspec.Build(runner, []byte(`{
		"metadata": {"labels": {"team": "a", "corral.development/x": "y"}, "annotations": {"note": "x"}},
		"spec": {"serviceAccountName": "ci", "containers": [
			{"name": "dind", "image": "d", "restartPolicy": "OnFailure"},
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
    cluster-autoscaler.kubernetes.io/safe-to-evict: "true"
    corral.dev/runner-uid: u1
    note: x
  labels:
    corral.dev/pool: linux
    corral.dev/revision: linux-0123456789
    corral.dev/runner: linux-abc
    corral.development/x: "y"
    team: a
  name: linux-abc
  namespace: ci
spec:
  automountServiceAccountToken: false
  containers:
  - image: d
    name: dind
    resources: {}
    restartPolicy: OnFailure
  - env:
    - name: A
      value: "1"
    - name: ACTIONS_RUNNER_INPUT_JITCONFIG
      valueFrom:
        secretKeyRef:
          key: jitToken
          name: linux-abc-jit
    - name: ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE
      value: "1"
    image: r
    name: runner
    resources: {}
    terminationMessagePolicy: FallbackToLogsOnError
  restartPolicy: Never
  serviceAccountName: ci
status: {}
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("pod (-want +got):\n%s", diff)
	}
}

func TestATemplateMaySayHowARefusedVersionIsTold(t *testing.T) {
	pod, err := podspec.Build(runner, []byte(`{"spec": {"containers": [{"name": "runner", "image": "r", "env": [{"name": "ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE", "value": "0"}]}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if env := pod.Spec.Containers[0].Env; len(env) != 2 || env[0].Value != "0" {
		t.Errorf("env is %v", env)
	}
}

func TestATemplateMayKeepItsLogToItself(t *testing.T) {
	pod, err := podspec.Build(runner, []byte(`{"spec": {"containers": [{"name": "runner", "image": "r", "terminationMessagePolicy": "File"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if policy := pod.Spec.Containers[0].TerminationMessagePolicy; policy != "File" {
		t.Errorf("the policy is %q", policy)
	}
}

func TestBuildRefusesWithTheField(t *testing.T) {
	cases := map[string]struct{ template, want string }{
		"unknown field":               {`{"spec": {"containers": [{"name": "runner", "imge": "r"}]}}`, `unknown field "spec.containers[0].imge"`},
		"wrong type":                  {`{"spec": {"containers": "runner"}}`, "containers"},
		"no container":                {`{"spec": {"containers": [{"name": "main"}]}}`, `a container named "runner" is required`},
		"restarts":                    {`{"spec": {"restartPolicy": "Always", "containers": [{"name": "runner"}]}}`, "restartPolicy: must be Never"},
		"not even object":             {`[]`, "spec.template"},
		"restarts the runner":         {`{"spec": {"containers": [{"name": "a"}, {"name": "runner", "restartPolicy": "Always"}]}}`, "spec.containers[1].restartPolicy: must be Never"},
		"restarts it on failure":      {`{"spec": {"containers": [{"name": "runner", "restartPolicy": "OnFailure"}]}}`, "spec.containers[0].restartPolicy: must be Never"},
		"restarts it by a rule":       {`{"spec": {"containers": [{"name": "runner", "restartPolicy": "Never", "restartPolicyRules": [{"action": "Restart"}]}]}}`, "spec.containers[0].restartPolicyRules"},
		"restarts all":                {`{"spec": {"initContainers": [{"name": "s", "restartPolicyRules": [{"action": "RestartAllContainers"}]}], "containers": [{"name": "runner"}]}}`, "spec.initContainers[0].restartPolicyRules"},
		"the pool's label":            {`{"metadata": {"labels": {"corral.dev/pool": "stolen"}}, "spec": {"containers": [{"name": "runner"}]}}`, "spec.template.metadata.labels[corral.dev/pool]"},
		"the mark of a job":           {`{"metadata": {"annotations": {"corral.dev/job": "{}"}}, "spec": {"containers": [{"name": "runner"}]}}`, "spec.template.metadata.annotations[corral.dev/job]"},
		"too large":                   {`{"spec": {"containers": [{"name": "runner", "args": ["` + strings.Repeat("x", 128<<10) + `"]}]}}`, "more than 131072: keep scripts"},
		"too many containers":         {`{"spec": {"initContainers": [{"name": "i"}], "containers": [{"name": "runner"}` + strings.Repeat(`,{"name":"x"}`, 63) + `]}}`, "spec.containers: 65 containers and init containers, more than 64"},
		"too many volumes":            {`{"spec": {"volumes": [{"name": "v"}` + strings.Repeat(`,{"name":"x"}`, 128) + `], "containers": [{"name": "runner"}]}}`, "spec.volumes: 129 volumes, more than 128"},
		"a key below ours":            {`{"metadata": {"labels": {"jobs.corral.dev/id": "1"}}, "spec": {"containers": [{"name": "runner"}]}}`, "spec.template.metadata.labels[jobs.corral.dev/id]"},
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
		"options of a driver":  {`"volumes": [{"name": "v", "csi": {"driver": "d", "volumeAttributes": {"adminSecretName": "github"}}}]`, "volumes[0]"},
		"a flexible volume's":  {`"volumes": [{"name": "v", "flexVolume": {"driver": "d", "options": {"secret": "github"}}}]`, "volumes[0]"},
		"another runner's JIT": {`"volumes": [{"name": "v", "secret": {"secretName": "linux-xyz-jit"}}]`, "reserved for runners' registrations"},
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

func TestDigestIsOfTheContent(t *testing.T) {
	digest := func(s string) string {
		d, err := podspec.Digest([]byte(s))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if a, b := digest(`{"a": 1, "b": {"c": 2}}`), digest(`{"b":{"c":2},"a":1}`); a != b {
		t.Errorf("formatting changes the digest: %s, %s", a, b)
	}
	for a, b := range map[string]string{`{"a": 1}`: `{"a": 2}`, `{"a": 9007199254740992}`: `{"a": 9007199254740993}`} {
		if digest(a) == digest(b) {
			t.Errorf("%s and %s have the digest %s", a, b, digest(a))
		}
	}
	if d, err := podspec.Digest([]byte(`{"a": 1} {"a": 2}`)); err == nil {
		t.Errorf("two templates have the digest %s", d)
	}
}

func TestRevisionNamesAreLabels(t *testing.T) {
	const digest = "0d7f9ec30b1122334455"
	for pool, want := range map[string]int{"linux": 10, strings.Repeat("x", 50): 10, strings.Repeat("x", 51): 1} {
		names := podspec.RevisionNames(pool, digest)
		if len(names) != want || names[0] != pool+"-0d7f9ec30b" {
			t.Errorf("%s has %v", pool, names)
		}
		for _, name := range names {
			if bad := validation.IsValidLabelValue(name); len(bad) > 0 {
				t.Errorf("%s: %v", name, bad)
			}
		}
	}
}
