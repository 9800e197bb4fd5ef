// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package podspec_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/podspec"
)

// poolOf returns a pool with a spec in YAML.
func poolOf(t *testing.T, spec string) *v1alpha1.RunnerPool {
	t.Helper()
	p := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "pool"}}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	return p
}

func templateOf(t *testing.T, p *v1alpha1.RunnerPool) map[string]any {
	t.Helper()
	text, err := podspec.Template(p)
	if err != nil {
		t.Fatal(err)
	}
	var template map[string]any
	if err := json.Unmarshal(text, &template); err != nil {
		t.Fatal(err)
	}
	return template
}

// flat adds the leaves of a value by their path. Elements of lists are identified by their name, if they have one.
func flat(into map[string]string, path string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, field := range v {
			flat(into, path+"."+key, field)
		}
		if len(v) > 0 {
			return
		}
	case []any:
		named := false
		for _, element := range v {
			if o, ok := element.(map[string]any); ok && o["name"] != nil {
				flat(into, fmt.Sprintf("%s[%v]", path, o["name"]), o)
				named = true
			}
		}
		if named {
			return
		}
	}
	text, _ := json.Marshal(value)
	into[strings.TrimPrefix(path, ".")] = string(text)
}

// The pod of each mode equals the pod of ARC's chart for the same settings, except for the listed differences.
func TestModesAreThoseOfARC(t *testing.T) {
	const template = `
template:
  spec:
    nodeSelector: {size: large}
    initContainers: [{name: prepare, image: "prepare:1"}]
    containers:
    - name: runner
      image: runner:1
      imagePullPolicy: Always
      command: [/home/runner/run.sh]
      resources: {requests: {cpu: "2"}}
      env: [{name: RUNNER_WAIT_FOR_DOCKER_IN_SECONDS, value: "60"}]
      volumeMounts: [{name: cache, mountPath: /cache}]
    - {name: database, image: "postgres:17"}
    volumes: [WORK{name: cache, emptyDir: {}}]
`
	type difference struct{ path, arc, ours, why string }
	never := difference{"restartPolicy", `"Never"`, "", "set of every pod when it is built"}
	account := difference{"serviceAccountName", `"pool-gha-rs-kube-mode"`, `"pool-hooks"`, "named after the pool, not after a Helm release"}
	token := difference{"automountServiceAccountToken", "", "true", "no token is mounted by default: the hooks need it"}
	for mode, tc := range map[string]struct {
		fields, work string
		differences  []difference
	}{
		"Docker": {"{type: Docker}", "{name: work, emptyDir: {sizeLimit: 20Gi}}, ", []difference{
			never,
			{"serviceAccountName", `"pool-gha-rs-no-permission"`, "", "no token is mounted by default, so no account without rights is needed"},
			{"initContainers[init-dind-externals].imagePullPolicy", "", `"Always"`, "as of the runner, whose image it is: one pull, one version"},
			{"initContainers[init-dind-externals].resources.requests.cpu", "", `"2"`, "a ResourceQuota may ask for them; it ends before the runner begins, so they cost nothing"},
			{"initContainers[dind].startupProbe.initialDelaySeconds", "0", "", "Kubernetes' default"},
			{"initContainers[dind].startupProbe.timeoutSeconds", "", "5", "on a busy node docker info takes longer than a second, Kubernetes' default"},
		}},
		"Kubernetes": {"{type: Kubernetes, kubernetes: {workVolumeClaim: {storageClassName: fast, size: 1Gi}}}", "", []difference{
			never, account, token,
			{"securityContext.fsGroup", "", "1001", "the runner's user can't write to many kinds of volumes else"},
		}},
		"KubernetesNoVolume": {"{type: KubernetesNoVolume}", "", []difference{
			never, {account.path, account.arc, `"pool-hooks-novolume"`, "so named, and each mode has its own: their rights differ"}, token,
		}},
	} {
		t.Run(mode, func(t *testing.T) {
			text, err := os.ReadFile("testdata/arc/" + mode + ".yaml")
			if err != nil {
				t.Fatal(err)
			}
			var theirs map[string]any
			if err := yaml.Unmarshal(text, &theirs); err != nil {
				t.Fatal(err)
			}
			arc, ours := map[string]string{}, map[string]string{}
			flat(arc, "", theirs)
			made := templateOf(t, poolOf(t, "connectionRef: {name: c}\ncontainerMode: "+tc.fields+strings.Replace(template, "WORK", tc.work, 1)))
			flat(ours, "", made["spec"])
			want := map[string]string{}
			for _, d := range tc.differences {
				want[d.path] = d.arc + " -> " + d.ours
			}
			got := map[string]string{}
			for path := range maps.Keys(arc) {
				if ours[path] != arc[path] {
					got[path] = arc[path] + " -> " + ours[path]
				}
			}
			for path := range maps.Keys(ours) {
				if _, known := arc[path]; !known {
					got[path] = " -> " + ours[path]
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("differences from ARC (-listed +found):\n%s", diff)
			}
			// Init containers run in their order.
			if diff := cmp.Diff(names(theirs["initContainers"]), names(made["spec"].(map[string]any)["initContainers"])); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func names(list any) []string {
	var names []string
	for _, element := range list.([]any) {
		names = append(names, element.(map[string]any)["name"].(string))
	}
	return names
}

func TestWithoutAModeTheTemplateStaysByteForByte(t *testing.T) {
	p := poolOf(t, "connectionRef: {name: c}")
	p.Spec.Template = runtime.RawExtension{Raw: []byte("{ \"spec\": {\"containers\":[ {\"name\":\"runner\"}]} }")}
	got, err := podspec.Template(p)
	if err != nil || string(got) != string(p.Spec.Template.Raw) {
		t.Errorf("got %s, %v", got, err)
	}
}

// The additions of a mode must not change between versions, because runners would be replaced.
func TestDigestsOfModesStay(t *testing.T) {
	for mode, want := range map[string]string{
		"{type: Docker, docker: {image: i, groupID: 5, mtu: 1400, registryMirrors: [\"https://m\"], resources: {limits: {cpu: 2}}}}": "a78ac35ad0",
		"{type: Kubernetes, kubernetes: {workVolumeClaim: {size: 1Gi}, hookTemplate: {name: 'false', key: k}}}":                      "aa8f380661",
		"{type: KubernetesNoVolume}": "d023adc584",
	} {
		text, err := podspec.Template(poolOf(t, "connectionRef: {name: c}\ncontainerMode: "+mode+"\ntemplate: {spec: {containers: [{name: runner, image: r}]}}"))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := podspec.Digest(text); err != nil || got[:10] != want {
			t.Errorf("%s: got %s, %v", mode, got[:10], err)
		}
	}
}

func TestTemplate(t *testing.T) {
	const (
		runner  = "containers: [{name: runner, image: r}]"
		claimed = "{type: Kubernetes, kubernetes: {workVolumeClaim: {size: 1Gi}}}"
	)
	for name, tc := range map[string]struct {
		mode, spec string
		want       map[string]string // by path; empty for a missing field
	}{
		"Docker with all fields": {
			`{type: Docker, docker: {image: "d:1", groupID: 5, mtu: 1400, registryMirrors: ["https://a", "https://b"], resources: {limits: {memory: 4Gi, cpu: 2}}}}`, runner,
			map[string]string{
				"initContainers[dind].image": `"d:1"`, "initContainers[dind].env[DOCKER_GROUP_GID].value": `"5"`,
				"initContainers[dind].args":                    `["dockerd","--host=unix:///var/run/docker.sock","--group=$(DOCKER_GROUP_GID)","--registry-mirror=https://a","--registry-mirror=https://b","--mtu=1400","--default-network-opt=bridge=com.docker.network.driver.mtu=1400"]`,
				"initContainers[dind].resources.limits.memory": `"4Gi"`, "initContainers[dind].resources.limits.cpu": `"2"`,
			},
		},
		"a daemon of the template's own": {
			"{type: Docker}", `initContainers: [{name: dind, image: mine, volumeMounts: [{name: work, mountPath: /home/runner/_work}]}], ` + runner,
			map[string]string{"initContainers[dind].image": `"mine"`, "initContainers[dind].args": "", "initContainers[init-dind-externals].image": `"r"`, "volumes[dind-sock].emptyDir": "{}"},
		},
		"a daemon among the containers, as ARC had it": {
			"{type: Docker}", `containers: [{name: runner, image: r}, {name: dind, image: mine, volumeMounts: [{name: work, mountPath: /var/lib/docker, subPath: docker}, {name: work, mountPath: /home/runner/_work/}]}]`,
			map[string]string{"initContainers[dind].image": "", "containers[dind].image": `"mine"`},
		},
		"a work folder elsewhere is the daemon's, too": {
			"{type: Docker}", `containers: [{name: runner, image: r, volumeMounts: [{name: work, mountPath: /runner/_work}]}]`,
			map[string]string{"initContainers[dind].volumeMounts[work].mountPath": `"/runner/_work"`, "containers[runner].volumeMounts[work].mountPath": `"/runner/_work"`},
		},
		"another volume is the work folder": {
			"{type: Docker}", `containers: [{name: runner, image: r, volumeMounts: [{name: disk, mountPath: /home/runner/_work/, subPath: a}]}], volumes: [{name: disk, emptyDir: {medium: Memory}}]`,
			map[string]string{
				"initContainers[dind].volumeMounts[disk].subPath": `"a"`, "initContainers[dind].volumeMounts[disk].mountPath": `"/home/runner/_work/"`,
				"volumes[disk].emptyDir.medium": `"Memory"`, "volumes[work].emptyDir": "",
			},
		},
		"the work folder before another mount of its volume": {
			"{type: Docker}", `containers: [{name: runner, image: r, volumeMounts: [{name: work, mountPath: /home/runner/_work}, {name: work, mountPath: /home/runner/.cache, subPath: cache}]}]`,
			map[string]string{"initContainers[dind].volumeMounts[work].mountPath": `"/home/runner/_work"`, "initContainers[dind].volumeMounts[work].subPath": ""},
		},
		"the work folder after another mount of its volume": {
			"{type: Docker}", `containers: [{name: runner, image: r, volumeMounts: [{name: work, mountPath: /home/runner/.cache, subPath: cache}, {name: work, mountPath: /home/runner/_work/, subPath: jobs}]}]`,
			map[string]string{"initContainers[dind].volumeMounts[work].mountPath": `"/home/runner/_work/"`, "initContainers[dind].volumeMounts[work].subPath": `"jobs"`},
		},
		"the work folder of another volume beside the volume work": {
			"{type: Docker}", `containers: [{name: runner, image: r, volumeMounts: [{name: disk, mountPath: /home/runner/_work}, {name: work, mountPath: /cache}]}], volumes: [{name: disk, emptyDir: {}}]`,
			map[string]string{"initContainers[dind].volumeMounts[disk].mountPath": `"/home/runner/_work"`, "initContainers[dind].volumeMounts[work].mountPath": ""},
		},
		"the first mount of the volume work without one at the work folder": {
			"{type: Docker}", `containers: [{name: runner, image: r, volumeMounts: [{name: work, mountPath: /runner/_work}, {name: work, mountPath: /cache, subPath: cache}]}]`,
			map[string]string{"initContainers[dind].volumeMounts[work].mountPath": `"/runner/_work"`, "initContainers[dind].volumeMounts[work].subPath": ""},
		},
		"a daemon of the template's own with a folder of each pod": {
			"{type: Docker}", `initContainers: [{name: dind, image: mine, volumeMounts: [{name: work, mountPath: /cache, subPath: cache}, {name: work, mountPath: /home/runner/_work, subPathExpr: $(POD)}]}],
				containers: [{name: runner, image: r, volumeMounts: [{name: work, mountPath: /home/runner/_work/, subPathExpr: $(POD)}]}]`,
			map[string]string{"initContainers[dind].image": `"mine"`, "containers[runner].volumeMounts[work].subPathExpr": `"$(POD)"`},
		},
		"variables of the template": {
			"{type: Docker}", `containers: [{name: runner, image: r, env: [{name: DOCKER_HOST, value: "tcp://elsewhere"}]}]`,
			map[string]string{"containers[runner].env[DOCKER_HOST].value": `"tcp://elsewhere"`, "containers[runner].env[RUNNER_WAIT_FOR_DOCKER_IN_SECONDS].value": `"120"`},
		},
		"nulls are as good as nothing": {
			"{type: Docker}", `initContainers: null, volumes: null, containers: [{name: runner, image: r, env: null}]`,
			map[string]string{"volumes[work].emptyDir": "{}", "initContainers[dind].image": `"docker:dind"`},
		},
		"elements that are null": {
			claimed, `initContainers: [null], volumes: [null], containers: [{name: runner, image: r, env: [null], volumeMounts: [null]}, null]`,
			map[string]string{"containers[runner].env[ACTIONS_RUNNER_REQUIRE_JOB_CONTAINER].value": `"true"`, "securityContext.fsGroup": "1001"},
		},
		"a hooks' template": {
			"{type: KubernetesNoVolume, kubernetes: {hookTemplate: {name: hooks, key: pod.yaml}}}", runner,
			map[string]string{
				"containers[runner].env[ACTIONS_RUNNER_CONTAINER_HOOK_TEMPLATE].value": `"/etc/corral/hook-template/pod.yaml"`,
				"containers[runner].volumeMounts[hook-template].readOnly":              "true",
				"volumes[hook-template].configMap.name":                                `"hooks"`,
				"volumes[hook-template].configMap.items":                               `[{"key":"pod.yaml","path":"pod.yaml"}]`,
			},
		},
		"an account and a group of the template": {
			claimed, `serviceAccountName: mine, securityContext: {fsGroup: 7, runAsUser: 1}, ` + runner,
			map[string]string{"serviceAccountName": `"mine"`, "securityContext.fsGroup": "7", "securityContext.runAsUser": "1"},
		},
		"another group beside what the template says": {
			claimed, `securityContext: {runAsUser: 1}, ` + runner,
			map[string]string{"securityContext.fsGroup": "1001", "securityContext.runAsUser": "1"},
		},
		"a volume that several nodes use": {
			"{type: Kubernetes, kubernetes: {workVolumeClaim: {size: 1Gi, accessModes: [ReadWriteMany]}}}", runner,
			map[string]string{"volumes[work].ephemeral.volumeClaimTemplate.spec.accessModes": `["ReadWriteMany"]`, "volumes[work].ephemeral.volumeClaimTemplate.spec.storageClassName": ""},
		},
		"a claim of the template's own is named to the hooks": {
			"{type: Kubernetes}", `volumes: [{name: work, persistentVolumeClaim: {claimName: shared}}], ` + runner,
			map[string]string{"containers[runner].env[ACTIONS_RUNNER_CLAIM_NAME].value": `"shared"`, "volumes[work].ephemeral.volumeClaimTemplate.spec.accessModes": ""},
		},
		"an ephemeral volume of the template's own": {
			"{type: Kubernetes}", `volumes: [{name: work, ephemeral: {volumeClaimTemplate: {spec: {volumeName: v}}}}], ` + runner,
			map[string]string{"volumes[work].ephemeral.volumeClaimTemplate.spec.volumeName": `"v"`, "containers[runner].env[ACTIONS_RUNNER_CLAIM_NAME].value": ""},
		},
		"a token that the template projects itself": {
			"{type: KubernetesNoVolume}", `automountServiceAccountToken: false, containers: [{name: runner, image: r, volumeMounts: [{name: token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}]}]`,
			map[string]string{"automountServiceAccountToken": "false"},
		},
		"a token that the template projects itself, with a slash": {
			"{type: KubernetesNoVolume}", `automountServiceAccountToken: false, containers: [{name: runner, image: r, volumeMounts: [{name: token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount/}]}]`,
			map[string]string{"automountServiceAccountToken": "false"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := poolOf(t, "connectionRef: {name: c}\ncontainerMode: "+tc.mode+"\ntemplate: {spec: {"+tc.spec+"}}")
			got := map[string]string{}
			flat(got, "", templateOf(t, p)["spec"])
			for _, path := range slices.Sorted(maps.Keys(tc.want)) {
				if got[path] != tc.want[path] {
					t.Errorf("%s: got %s, want %s", path, got[path], tc.want[path])
				}
			}
			if _, err := podspec.Specimen(p); err != nil {
				t.Error(err)
			}
		})
	}
}

// A pool whose jobs run no containers may have its own daemon for builds.
func TestOwnDaemonWithoutTheWorkFolder(t *testing.T) {
	const mount, runner = "{name: work, mountPath: /home/runner/_work}", `containers: [{name: runner, image: r}]`
	for name, tc := range map[string]struct{ mode, spec, want string }{
		"mounts nothing":         {"{type: Docker}", `initContainers: [{name: dind, image: d}], ` + runner, `add the mount {name: "work", mountPath: "/home/runner/_work"}`},
		"mounts another volume":  {"{type: Docker}", `initContainers: [{name: dind, image: d, volumeMounts: [{name: dind-sock, mountPath: /var/run}]}], ` + runner, "find an empty one"},
		"mounts the work folder": {"{type: Docker}", `initContainers: [{name: dind, image: d, volumeMounts: [` + mount + `]}], ` + runner, ""},
		"is Corral's":            {"{type: Docker}", runner, ""},
		"is not the mode's":      {"{type: KubernetesNoVolume}", `containers: [{name: runner, image: r}, {name: dind, image: d}]`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := poolOf(t, "connectionRef: {name: c}\ncontainerMode: "+tc.mode+"\ntemplate: {spec: {"+tc.spec+"}}")
			if _, err := podspec.Specimen(p); err != nil {
				t.Error(err)
			}
			if got := podspec.DaemonApart(p); !strings.Contains(got, tc.want) || (tc.want == "") != (got == "") {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestTemplateRefusesWithTheField(t *testing.T) {
	const (
		runner  = "containers: [{name: runner, image: r}]"
		claimed = "{type: Kubernetes, kubernetes: {workVolumeClaim: {size: 1Gi}}}"
		hooked  = "{type: KubernetesNoVolume, kubernetes: {hookTemplate: {name: 'n', key: k}}}"
	)
	for name, tc := range map[string]struct{ mode, spec, want string }{
		"an unknown field":               {"{type: Docker}", `containers: [{name: runner, imge: r}]`, `spec.template: unknown field "spec.containers[0].imge"`},
		"no runner":                      {"{type: Docker}", `containers: [{name: other}]`, "spec.template.spec.containers: a container named"},
		"a daemon twice":                 {"{type: Docker, docker: {mtu: 1400}}", `initContainers: [{name: dind}], ` + runner, "spec.containerMode.docker: spec.template.spec.initContainers[0] is a container dind of the template's own"},
		"a mount in the socket's place":  {"{type: Docker}", `containers: [{name: runner, volumeMounts: [{name: run, mountPath: /var/run/}]}]`, "spec.template.spec.containers[0].volumeMounts[0].mountPath: /var/run is where"},
		"the socket elsewhere":           {"{type: Docker}", `containers: [{name: runner, volumeMounts: [{name: dind-sock, mountPath: /docker}]}]`, "spec.template.spec.containers[0].volumeMounts[0].mountPath: must be /var/run, or DOCKER_HOST be set"},
		"the daemon's mount elsewhere":   {"{type: Docker}", `initContainers: [{name: dind, volumeMounts: [{name: work, mountPath: /w}]}], ` + runner, "spec.template.spec.initContainers[0].volumeMounts: must have a mount of the volume work at /home/runner/_work"},
		"the daemon's part of a volume":  {"{type: Docker}", `initContainers: [{name: dind, volumeMounts: [{name: work, mountPath: /home/runner/_work, subPath: a}]}], ` + runner, "spec.template.spec.initContainers[0].volumeMounts[0]: must be of the volume work with the subPath"},
		"a folder of each pod":           {"{type: Docker}", `containers: [{name: runner, volumeMounts: [{name: cache, mountPath: /c}, {name: work, mountPath: /home/runner/_work, subPathExpr: $(POD)}]}]`, "spec.template.spec.containers[0].volumeMounts[1].subPathExpr: must not be set"},
		"a folder of each pod elsewhere": {"{type: Docker}", `containers: [{name: runner, volumeMounts: [{name: disk, mountPath: /home/runner/_work/, subPathExpr: $(POD)}]}]`, "spec.template.spec.containers[0].volumeMounts[0].subPathExpr: must not be set"},
		"the daemon has the whole volume": {
			"{type: Docker}", `initContainers: [{name: dind, volumeMounts: [{name: work, mountPath: /home/runner/_work}]}], containers: [{name: runner, volumeMounts: [{name: work, mountPath: /home/runner/_work, subPathExpr: $(POD)}]}]`,
			"spec.template.spec.initContainers[0].volumeMounts[0]: must be of the volume work with the subPath",
		},
		"no claim":                       {"{type: Kubernetes}", runner, "spec.containerMode.kubernetes.workVolumeClaim: must be set"},
		"a claim and a volume":           {claimed, `volumes: [{name: work, emptyDir: {}}], ` + runner, "spec.template.spec.volumes[0].name: work is the volume of spec.containerMode.kubernetes.workVolumeClaim"},
		"a volume that can't be shared":  {"{type: Kubernetes}", `volumes: [{name: a, emptyDir: {}}, {name: work, emptyDir: {}}], ` + runner, "spec.template.spec.volumes[1]: work must be ephemeral"},
		"a part of the volume":           {claimed, `containers: [{name: runner, volumeMounts: [{name: work, mountPath: /w, subPath: a}]}]`, "spec.template.spec.containers[0].volumeMounts[0].subPath: must not be set"},
		"another volume for the work":    {claimed, `containers: [{name: runner, volumeMounts: [{name: disk, mountPath: /home/runner/_work}]}]`, "spec.template.spec.containers[0].volumeMounts[0].mountPath: must not be /home/runner/_work"},
		"no token":                       {claimed, `automountServiceAccountToken: false, ` + runner, "spec.template.spec.automountServiceAccountToken: must not be false"},
		"a hooks' template and its name": {hooked, `volumes: [{name: hook-template}], ` + runner, "spec.template.spec.volumes[0].name: hook-template is the volume of"},
		"a hooks' template twice":        {hooked, `containers: [{name: runner, env: [{name: ACTIONS_RUNNER_CONTAINER_HOOK_TEMPLATE, value: /x}]}]`, "spec.containerMode.kubernetes.hookTemplate: the template sets"},
	} {
		t.Run(name, func(t *testing.T) {
			p := poolOf(t, "connectionRef: {name: c}\ncontainerMode: "+tc.mode+"\ntemplate: {spec: {"+tc.spec+"}}")
			if _, err := podspec.Template(p); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

func TestHooksAccount(t *testing.T) {
	const runner = `{"name": "runner", "env": [{"name": "ACTIONS_RUNNER_CONTAINER_HOOKS", "value": "x"}]}`
	withToken := strings.Replace(runner, `}]}`, `}], "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount/"}]}`, 1)
	for name, tc := range map[string]struct{ template, want string }{
		"none":               {`{"spec": {"containers": [{"name": "runner"}], "serviceAccountName": "a", "automountServiceAccountToken": true}}`, ""},
		"hooks":              {`{"spec": {"containers": [` + runner + `], "serviceAccountName": "a", "automountServiceAccountToken": true}}`, "a"},
		"a former name":      {`{"spec": {"containers": [` + runner + `], "serviceAccount": "a", "automountServiceAccountToken": true}}`, "a"},
		"no name":            {`{"spec": {"containers": [` + runner + `], "automountServiceAccountToken": true}}`, "default"},
		"hooks of no rights": {`{"spec": {"containers": [` + runner + `], "serviceAccountName": "a"}}`, ""},
		"a projected token":  {`{"spec": {"containers": [` + withToken + `], "serviceAccountName": "a", "automountServiceAccountToken": false}}`, "a"},
		"only its token":     {`{"spec": {"containers": [` + withToken + `]}}`, "default"},
		"a sidecar's token":  {`{"spec": {"containers": [` + runner + `, {"name": "x", "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]}], "automountServiceAccountToken": false}}`, ""},
		"a sidecar's":        {`{"spec": {"containers": [{"name": "runner"}, {"name": "x", "env": [{"name": "ACTIONS_RUNNER_CONTAINER_HOOKS"}]}], "serviceAccountName": "a", "automountServiceAccountToken": true}}`, ""},
		"no template":        {`"ACTIONS_RUNNER_CONTAINER_HOOKS"`, ""},
	} {
		if got := podspec.HooksAccount([]byte(tc.template)); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

func TestDeclaredPath(t *testing.T) {
	const runner = "containers: [{name: runner, image: r}]"
	for _, tc := range []struct{ mode, spec, path, want string }{
		{"null", runner, "spec.template.spec.initContainers[1].image", "spec.template.spec.initContainers[1].image"},
		{"{type: Docker}", runner, "spec.template.spec.initContainers[2].image", "spec.template.spec.initContainers[0].image"},
		{"{type: Docker}", runner, "spec.template.spec.initContainers[1].securityContext", "spec.containerMode"},
		{"{type: Docker}", runner, "spec.template.spec.containers[1].image", "spec.template.spec.containers[1].image"},
		{"{type: Docker}", "initContainers: [{name: dind}], " + runner, "spec.template.spec.initContainers[1].image", "spec.template.spec.initContainers[0].image"},
		{"{type: KubernetesNoVolume}", runner, "spec.template.spec.initContainers[1].image", "spec.template.spec.initContainers[1].image"},
	} {
		p := poolOf(t, "connectionRef: {name: c}\ncontainerMode: "+tc.mode+"\ntemplate: {spec: {"+tc.spec+"}}")
		if got := podspec.DeclaredPath(p, tc.path); got != tc.want {
			t.Errorf("%s in %s: got %s, want %s", tc.path, tc.mode, got, tc.want)
		}
	}
}
