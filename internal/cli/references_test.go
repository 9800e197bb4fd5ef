// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strings"
	"testing"
)

func TestReferencesBetweenObjectsAreChecked(t *testing.T) {
	const pool = "package pools\n\npools: other: spec: {\n\tconnectionRef: name: \"acme\"\n\ttemplate: spec: containers: [{name: \"runner\", image: \"a:1\"}]\n}\n"
	for name, tc := range map[string]struct {
		was, becomes, want string
		code               int
	}{
		"all is there": {"", "", "", exitOK},
		"a connection that nothing declares": {`"acme"`, `"amce"`,
			`pools/other.cue:4:23: pools.other.spec.connectionRef.name: warning: no GitHubConnection amce is declared here, so it must be in the cluster`, exitOK},
		"a scale set of another pool": {"\ttemplate", "\tscaleSetName: \"linux-small\"\n\ttemplate",
			`pools/other.cue:5:16: pools.other.spec.scaleSetName: warning: pool linux-small has the scale set linux-small, too: one of the two will be refused`, exitOK},
		"the Secret of a connection": {`image: "a:1"`, `image: "a:1", envFrom: [{secretRef: name: "github"}]`,
			`pools/other.cue:5:72: pools.other.spec.template.spec.containers[0].envFrom[0]: Secret "github" holds the credentials of a GitHubConnection or a PoolSource; a runner may not read it`, exitError},
		"the Secret of another runner": {`image: "a:1"`, `image: "a:1", envFrom: [{secretRef: name: "linux-small-1-jit"}]`,
			`has a name that is reserved for runners' registrations (*-jit): a runner may not read another runner's registration`, exitError},
		"a pod that restarts": {`containers:`, `{restartPolicy: "Always"} & {containers:`, `restartPolicy`, exitError},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(pool, tc.was, tc.becomes, 1)
			if strings.Contains(tc.becomes, "& {") {
				text = strings.Replace(text, "}]\n}", "}]}\n}", 1)
			}
			got := corral(t, repositoryOf(t, map[string]string{"pools/other.cue": text}), "vet")
			if got.code != tc.code || !strings.Contains(got.stderr, tc.want) || tc.want == "" && got.stderr != "" {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestContainerModesAreChecked(t *testing.T) {
	for name, tc := range map[string]struct{ mode, spec, want string }{
		"what it needs": {`type: "Kubernetes"`, `containers: [{name: "runner", image: "a:1"}]`,
			`pools/other.cue:5:2: pools.other.spec.containerMode.kubernetes.workVolumeClaim: must be set`},
		"fields of another": {`type: "KubernetesNoVolume", docker: mtu: 1400`, `containers: [{name: "runner", image: "a:1"}]`,
			`pools/other.cue:5:46: pools.other.spec.containerMode.docker: docker may only be set with type Docker`},
		"a claim without a volume": {`type: "KubernetesNoVolume", kubernetes: workVolumeClaim: size: "1Gi"`, `containers: [{name: "runner", image: "a:1"}]`,
			`pools.other.spec.containerMode.kubernetes.workVolumeClaim: workVolumeClaim may only be set with type Kubernetes`},
		"a claim and a volume": {`type: "Kubernetes", kubernetes: workVolumeClaim: size: "1Gi"`, `containers: [{name: "runner", image: "a:1"}], volumes: [{name: "work", emptyDir: {}}]`,
			`pools/other.cue:6:82: pools.other.spec.template.spec.volumes[0].name: work is the volume of`},
		"credentials in reach of its jobs": {`type: "KubernetesNoVolume"`, `containers: [{name: "runner", image: "a:1"}]`,
			`pools/other.cue:5:2: pools.other.spec.containerMode: warning: jobs can read each Secret of the namespace, and GitHubConnection acme is in it: keep its credentials in another`},
		"the socket where nobody looks": {`type: "Docker"`, `containers: [{name: "runner", image: "a:1", volumeMounts: [{name: "dind-sock", mountPath: "/docker"}]}]`,
			"pools/other.cue:6:109: pools.other.spec.template.spec.containers[0].volumeMounts[0].mountPath: invalid value \"/docker\": must be /var/run, or DOCKER_HOST be set"},
		"a mount of what it adds": {`type: "Docker"`, `containers: [{name: "runner", image: "a:1", volumeMounts: [{name: "dind-sock", mountPath: "/var/run"}]}]`, ""},
		"a fault after its containers": {`type: "Docker"`, `initContainers: [{name: "a"}], containers: [{name: "runner", image: "a:1"}]`,
			`pools/other.cue:6:36: pools.other.spec.template.spec.initContainers[0].image: `},
		"a fault of its own": {`type: "Docker", docker: resources: {requests: cpu: "2", limits: cpu: "1"}`, `containers: [{name: "runner", image: "a:1"}]`,
			`pools/other.cue:5:2: pools.other.spec.containerMode: `},
	} {
		t.Run(name, func(t *testing.T) {
			text := "package pools\n\npools: other: spec: {\n\tconnectionRef: name: \"acme\"\n\tcontainerMode: {" + tc.mode + "}\n\ttemplate: spec: {" + tc.spec + "}\n}\n"
			got := corral(t, repositoryOf(t, map[string]string{"pools/other.cue": text}), "vet")
			warned := strings.Contains(tc.want, "warning")
			if !strings.Contains(got.stderr, tc.want) || (got.code == exitOK) != (tc.want == "" || warned) {
				t.Errorf("got %+v", got)
			}
		})
	}
}
