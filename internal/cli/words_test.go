// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"maps"
	"regexp"
	"strings"
	"testing"
)

// vetOutput returns the output of vet for a pool with additions to its spec, its pod and its runner container.
func vetOutput(t *testing.T, name, spec, pod, container string, more map[string]string) string {
	t.Helper()
	changes := map[string]string{"extra.cue": fmt.Sprintf(`package pools

import "corral.dev/schema@v0"

pools: schema.#Pools
pools: %q: spec: {
	connectionRef: name: "acme"
	%s
	template: spec: {
		%s
		containers: [{name: "runner", image: *"ghcr.io/acme/runner:1" | string, %s}]
	}
}
`, name, spec, pod, container)}
	maps.Copy(changes, more)
	got := corral(t, repositoryOf(t, changes), "vet")
	return got.stdout + got.stderr
}

// Common mistakes are reported at their position, with a fix.
func TestVetNamesTheMistakeAndItsRemedy(t *testing.T) {
	const policies = "package pools\n\nimport \"corral.dev/schema@v0\"\n\npolicies: schema.#Policies\npolicies: guard: spec: "
	for name, tc := range map[string]struct {
		name, spec, pod, container string
		more                       map[string]string
		want                       []string
	}{
		"a mode in decimal digits": {pod: `volumes: [{name: "a", secret: {secretName: "a", defaultMode: 755}}]`, want: []string{"extra.cue:10:64: ", "volumes[0].secret.defaultMode: invalid value 755:", "did you mean 0o755?"}},
		"a mount of no volume":     {container: `volumeMounts: [{name: "work", mountPath: "/a"}]`, want: []string{`volumeMounts[0].name: there is no volume "work" in volumes of the pod: add it`}},
		"a probe of two kinds":     {container: `livenessProbe: {exec: command: ["a"], tcpSocket: port: 1}`, want: []string{"livenessProbe.tcpSocket: may not specify more than 1 handler type"}},
		"a long name":              {name: "a-" + strings.Repeat("b", 47), want: []string{"metadata: name must have at most 48 characters"}},
		"a name with a dot":        {name: "a.b", want: []string{"metadata: name must not contain dots"}},
		"a name in capitals":       {name: "Ab", want: []string{"metadata.name: must be lower-case letters, digits, - and ."}},
		"labels without the name":  {spec: `runnerLabels: ["gpu"]`, want: []string{"pool extra: runnerLabels replaces the scale set's name, which ARC adds to its labels"}},
		"empty fields": {spec: "scale: null\n\tdemand: null\n\tcontainerMode: null\n\trunnerLabels: null\n\tmode: \"Obs\"", pod: "nodeSelector: null\n\t\ttolerations: null\n\t\thostname: null", want: []string{
			"spec.scale: is empty (null): give it a value, or remove the field", "spec.demand: is empty (null)", "spec.containerMode: is empty (null)", "spec.runnerLabels: is empty (null)",
			"spec.nodeSelector: is empty (null)", "spec.tolerations: is empty (null)", "spec.hostname: is empty (null)", "spec.mode: "}},
		"fields of ARC": {spec: "minRunners: 1\n\tmaxRunners: 2\n\tgithubConfigUrl: \"a\"\n\treplicas: 1\n\trunsOn: [\"a\"]\n\tproxy: {}\n\tscaleSetLabels: [\"a\"]", want: []string{
			"spec.minRunners: field not allowed; ARC's minRunners is Corral's scale.idle", "ARC's maxRunners is Corral's scale.max", "ARC's replicas is Corral's scale.min and scale.max",
			"ARC's githubConfigUrl is Corral's url of the GitHubConnection that connectionRef names", "ARC's runsOn is Corral's runnerLabels",
			"ARC's proxy is Corral's proxy of the GitHubConnection that connectionRef names", "ARC's scaleSetLabels is Corral's runnerLabels"}},
		"GitHub's image without a command": {container: `image: "ghcr.io/actions/actions-runner:2.330.0"`, want: []string{
			"warning: GitHub's runner image starts nothing by itself, so the runner ends without a job"}},
		"labels of all objects": {spec: `objectMetadata: labels: cost: "x"`, more: map[string]string{"policy.cue": policies + `library: metadata: labels: ["team"]` + "\n"}, want: []string{"pools.extra.spec.objectMetadata.labels.cost: denied"}},
		"a daemon without the work folder": {spec: `containerMode: type: "Docker"`, pod: `initContainers: [{name: "dind", image: "docker:dind", restartPolicy: "Always"}]`, want: []string{
			`warning: container dind does not mount the work folder, so the containers of jobs find an empty one; if jobs have containers, add the mount {name: "work", mountPath: "/home/runner/_work"}`, "ok: "}},
		"a daemon with data of its own": {spec: `containerMode: type: "Docker"`, pod: `initContainers: [{name: "dind", image: "docker:dind", restartPolicy: "Always", volumeMounts: [{name: "work", mountPath: "/var/lib/docker", subPath: "docker"}]}]`, want: []string{
			`initContainers[0].volumeMounts: must have a mount of the volume work at /home/runner/_work`}},
		"a quantity as text": {more: map[string]string{"policies/memory.rego": "package corral.template\n\nimport rego.v1\n\ndeny contains \"too much memory\" if {\n\tsome c in input.pod.spec.containers\n\tmemory := c.resources.limits.memory\n\tmemory > \"2Gi\"\n}\n"}, want: []string{
			"policies/memory.rego:8:2: RunnerPolicy/repository: warning: input.pod.spec.containers[_].resources.limits.memory is a quantity such as 16Gi, which is compared as text here; compare corral.quantity(…) of it",
			"policies/memory.rego:5:1: RunnerPolicy/repository: warning: the rule looks at containers and not at initContainers, where sidecars are"}},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.name == "" {
				tc.name = "extra"
			}
			got := vetOutput(t, tc.name, tc.spec, tc.pod, tc.container, tc.more)
			for _, want := range tc.want {
				if !strings.Contains(got, want) {
					t.Errorf("%q isn't in:\n%s", want, got)
				}
			}
		})
	}
}

// command matches text that GitHub's runner interprets as a workflow command.
var command = regexp.MustCompile(`(?m)^\s*::|##\[`)

// The author of a pull request must not be able to send commands to the runner that checks it.
func TestNoOutputIsAWorkflowCommand(t *testing.T) {
	const evil = `x\n::add-mask::a\n  ::stop-commands::b\n##[set-output]c\n::set-output name=a::b`
	folder := repositoryOf(t, map[string]string{
		"extra.cue": fmt.Sprintf("package pools\n\nimport \"corral.dev/schema@v0\"\n\npools: schema.#Pools\npools: evil: {\n\tmetadata: annotations: \"acme.example/note\": \"%[1]s\"\n\tspec: {\n\t\tconnectionRef: name: \"acme\"\n"+
			"\t\tscale: schedules: [{name: \"night\", weekly: {days: [\"Monday\"], from: \"07:00\", to: \"19:00\"}, scale: max: 1}]\n"+
			"\t\ttemplate: spec: containers: [{name: \"runner\", image: \"a:1\", env: [{name: \"A\", value: \"%[1]s\"}]}]\n\t}\n}\n", evil),
		"policies/evil.rego":      fmt.Sprintf("package corral.template\n\ndeny contains {\"msg\": \"%[1]s\", \"path\": \"%[1]s\", \"code\": \"%[1]s\", \"remediation\": \"%[1]s\"} if print(\"%[1]s\")\n", evil),
		"policies/evil_test.rego": fmt.Sprintf("package corral.template_test\n\nimport data.corral.template\n\ntest_evil if {\n\tprint(\"%[1]s\")\n\tcount(template.deny) == 5 with input as {\"pod\": {}}\n}\n", evil),
		"evil.scenario.yaml":      fmt.Sprintf("pool: evil\ncases:\n- name: \"%[1]s\"\n  at: 2026-01-05T08:00:00Z\n  expect: {max: 7}\n", evil),
	})
	for _, args := range [][]string{
		{"vet"}, {"vet", "-o", "yaml"}, {"vet", "-o", "json"}, {"test"}, {"test", "-v"}, {"test", "--coverage"}, {"build"}, {"build", "-o", "json"}, {"build", "--pods"}, {"calendar"}, {"calendar", "evil"},
		{"review", "--base", "HEAD"}, {"eval", "-f", "evil.scenario.yaml"}, {"explain", "evil"}, {"fmt", "--check"}, {"fmt", "--diff"},
	} {
		got := corral(t, folder, args...)
		if found := command.FindString(got.stdout + "\n" + got.stderr); found != "" {
			t.Errorf("%v prints a command:\n%s\n%s", args, got.stdout, got.stderr)
		}
		t.Logf("%v: %d\n%s\n%s", args, got.code, got.stdout, got.stderr)
	}
}
