// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package podspec_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/corral-dev/corral/internal/podspec"
)

const plainTemplate = "\ntemplate: {spec: {containers: [{name: runner, image: r}]}}"

// Jobs work in one folder: the folder in the registration, in the runner's mount and in the daemon's mount.
func TestTheWorkFolderIsTheSameInEachMode(t *testing.T) {
	const inKubernetes = "containerMode: {type: Kubernetes, kubernetes: {workVolumeClaim: {size: 1Gi}}}"
	for name, tc := range map[string]struct{ spec, folder, mounted, err string }{
		"the default":                       {"containerMode: {type: Docker}", "", "/home/runner/_work", ""},
		"no mode":                           {"workFolder: /builds", "/builds", "", ""},
		"no mode, on Windows":               {`workFolder: 'D:\work'`, `D:\work`, "", ""},
		"Docker":                            {"workFolder: builds\ncontainerMode: {type: Docker}", "builds", "/home/runner/builds", ""},
		"Docker, by a path":                 {"workFolder: /mnt/builds/\ncontainerMode: {type: Docker}", "/mnt/builds/", "/mnt/builds", ""},
		"Docker, by a path of Windows":      {`workFolder: 'D:\work'` + "\ncontainerMode: {type: Docker}", "", "", "spec.workFolder: must be a path of Linux"},
		"Kubernetes":                        {"workFolder: my_work\n" + inKubernetes, "my_work", "/home/runner/my_work", ""},
		"Kubernetes, by its path":           {"workFolder: /home/runner/my_work\n" + inKubernetes, "/home/runner/my_work", "/home/runner/my_work", ""},
		"Kubernetes, that hooks don't find": {"workFolder: builds\n" + inKubernetes, "", "", "spec.workFolder: must be a name that ends in _work, such as my_work: "},
		"Kubernetes, elsewhere":             {"workFolder: /mnt/_work\n" + inKubernetes, "", "", "spec.workFolder: must be a name that ends in _work"},
		"KubernetesNoVolume":                {"workFolder: /mnt/builds\ncontainerMode: {type: KubernetesNoVolume}", "/mnt/builds", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			template, err := podspec.Template(poolOf(t, tc.spec+plainTemplate))
			if tc.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tc.err) {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := podspec.WorkFolder(template); got != tc.folder {
				t.Errorf("the registration has %q", got)
			}
			pod, err := podspec.Build(runner, template)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
				var at string
				for _, m := range c.VolumeMounts {
					if m.Name == "work" {
						at = m.MountPath
					}
				}
				if c.Name != "init-dind-externals" && at != tc.mounted {
					t.Errorf("%s has the work folder at %q", c.Name, at)
				}
			}
		})
	}
}

// The template's own mount and variable take precedence.
func TestATemplateMaySayItsWorkFolder(t *testing.T) {
	template, err := podspec.Template(poolOf(t, `
containerMode: {type: Docker}
template: {spec: {containers: [{name: runner, image: r, env: [{name: ACTIONS_RUNNER_INPUT_WORK, value: builds}], volumeMounts: [{name: disk, mountPath: /home/runner/builds, subPath: w}]}], volumes: [{name: disk, emptyDir: {}}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := podspec.WorkFolder(template); got != "builds" {
		t.Errorf("the registration has %q", got)
	}
	pod, err := podspec.Build(runner, template)
	if err != nil {
		t.Fatal(err)
	}
	want := corev1.VolumeMount{Name: "disk", MountPath: "/home/runner/builds", SubPath: "w"}
	if diff := cmp.Diff(want, pod.Spec.InitContainers[1].VolumeMounts[0]); diff != "" {
		t.Errorf("the daemon's mount:\n%s", diff)
	}
}

func TestAWorkFolderThatIsSomethingElse(t *testing.T) {
	template := func(env string) string {
		return "\ntemplate: {spec: {containers: [{name: runner, image: r, env: [" + env + "]}]}}"
	}
	own := template("{name: ACTIONS_RUNNER_INPUT_WORK, value: /own}")
	for spec, want := range map[string]string{
		"workFolder: bin" + template(""):                      "spec.workFolder: bin belongs to the runner or its operating system; choose another",
		"workFolder: /home/runner/./externals" + template(""): "spec.workFolder: /home/runner/./externals belongs to",
		"workFolder: k8s/x" + template(""):                    "spec.workFolder: k8s/x belongs to",
		`workFolder: 'bin\x'` + template(""):                  `spec.workFolder: bin\x belongs to`,
		"workFolder: /home/runner" + template(""):             "spec.workFolder: /home/runner belongs to",
		"workFolder: /home" + template(""):                    "spec.workFolder: /home belongs to",
		"workFolder: /etc" + template(""):                     "spec.workFolder: /etc belongs to",
		"workFolder: C:foo" + template(""):                    "spec.workFolder: must have a slash after the drive",
		`workFolder: 'C:\foo'` + template(""):                 "",
		"workFolder: bins" + template(""):                     "",
		"workFolder: /usr/work" + template(""):                "",
		"workFolder: builds" + own:                            "spec.workFolder: the template sets ACTIONS_RUNNER_INPUT_WORK itself, so this would have no effect; remove one of the two",
		"workFolder: /own" + own:                              "",
		"containerMode: {type: Docker}" + template("{name: ACTIONS_RUNNER_INPUT_WORK, value: bin}"): "spec.workFolder: bin belongs to",
	} {
		_, err := podspec.Template(poolOf(t, spec))
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%s: %v", spec, err)
		}
	}
}

func TestPodsHaveTheMetadataOfObjects(t *testing.T) {
	template, err := podspec.Template(poolOf(t, `
objectMetadata: {labels: {team: a, tier: "1"}, annotations: {example.com/cost-centre: "7"}}
template: {metadata: {labels: {team: own}}, spec: {containers: [{name: runner, image: r}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	pod, err := podspec.Build(runner, template)
	if err != nil || pod.Labels["team"] != "own" || pod.Labels["tier"] != "1" || pod.Annotations["example.com/cost-centre"] != "7" {
		t.Errorf("labels %v, annotations %v, %v", pod.Labels, pod.Annotations, err)
	}
	for metadata, want := range map[string]string{
		"labels: {app.kubernetes.io/instance: x}":                                  "spec.objectMetadata.labels[app.kubernetes.io/instance]: another tool uses this key",
		"annotations: {argocd.argoproj.io/tracking-id: x}":                         "spec.objectMetadata.annotations[argocd.argoproj.io/tracking-id]: another tool uses this key",
		"annotations: {kubectl.kubernetes.io/last-applied-configuration: x}":       "spec.objectMetadata.annotations[kubectl.kubernetes.io/last-applied-configuration]: another tool uses this key",
		"labels: {kustomize.toolkit.fluxcd.io/name: x}":                            "spec.objectMetadata.labels[kustomize.toolkit.fluxcd.io/name]: another tool uses this key",
		"labels: {kapp.k14s.io/app: x}":                                            "spec.objectMetadata.labels[kapp.k14s.io/app]: another tool uses this key",
		"annotations: {objectset.rio.cattle.io/id: x}":                             "spec.objectMetadata.annotations[objectset.rio.cattle.io/id]: another tool uses this key",
		"labels: {addonmanager.kubernetes.io/mode: Reconcile}":                     "spec.objectMetadata.labels[addonmanager.kubernetes.io/mode]: another tool uses this key",
		"labels: {corral.dev/pool: x}":                                             "spec.objectMetadata.labels[corral.dev/pool]: keys of corral.dev are reserved for Corral",
		"labels: {'a b': x}":                                                       "spec.objectMetadata.labels[a b]: is no key: ",
		"labels: {app.kubernetes.io/name: x}, annotations: {Example.com/Owner: x}": "",
		"labels: {Example.com/owner: x}":                                           "spec.objectMetadata.labels[Example.com/owner]: is no key",
	} {
		_, err := podspec.Template(poolOf(t, "objectMetadata: {"+metadata+"}"+plainTemplate))
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%s: %v", metadata, err)
		}
	}
}
