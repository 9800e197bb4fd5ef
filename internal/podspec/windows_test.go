// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package podspec_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/podspec"
)

// windowsExample returns the compiled pool of examples/windows.
func windowsExample(t *testing.T) *v1alpha1.RunnerPool {
	t.Helper()
	text, err := os.ReadFile("../../examples/windows/objects.yaml")
	if err != nil {
		t.Fatal(err)
	}
	pool := &v1alpha1.RunnerPool{}
	for document := range strings.SplitSeq(string(text), "---\n") {
		if strings.Contains(document, "kind: RunnerPool") {
			if err := yaml.UnmarshalStrict([]byte(document), pool); err != nil {
				t.Fatal(err)
			}
		}
	}
	return pool
}

// No addition to a template needs Linux: a kubelet on Windows refuses pods with such fields, and Windows has neither a
// shell nor /tmp.
func TestNothingOfLinuxIsAddedToAPodOfWindows(t *testing.T) {
	for name, change := range map[string]func(p *v1alpha1.RunnerPool){
		"as it is":         func(*v1alpha1.RunnerPool) {},
		"in a work folder": func(p *v1alpha1.RunnerPool) { p.Spec.WorkFolder = `D:\work` },
		"with a cache":     func(p *v1alpha1.RunnerPool) { p.Spec.Cache = &v1alpha1.CacheSpec{Size: "1Gi", MountPath: "/cache"} },
	} {
		pool := windowsExample(t)
		change(pool)
		pod, err := podspec.SpecimenOver(pool, podspec.Network{Proxies: true, CA: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range ofLinux(&pod.Spec, pool) {
			t.Errorf("%s: %s", name, problem)
		}
		if got := podspec.OwnTrust(pod); !strings.Contains(got, "put them into the image") {
			t.Errorf("%s: of certificates it says %q", name, got)
		}
	}
}

// ofLinux names the fields that Windows does not support, by Kubernetes' list:
// https://kubernetes.io/docs/concepts/windows/intro/#compatibility-v1-pod
func ofLinux(spec *corev1.PodSpec, pool *v1alpha1.RunnerPool) (problems []string) {
	if spec.SecurityContext != nil || spec.HostPID || spec.HostIPC || spec.HostNetwork || spec.ShareProcessNamespace != nil {
		problems = append(problems, fmt.Sprintf("the pod has %+v", spec.SecurityContext))
	}
	for _, v := range spec.Volumes {
		if v.EmptyDir != nil && v.EmptyDir.Medium != "" || v.HostPath != nil {
			problems = append(problems, fmt.Sprintf("volume %+v", v))
		}
	}
	for _, c := range append(spec.InitContainers, spec.Containers...) {
		if c.Name != "runner" || c.SecurityContext != nil || c.Lifecycle != nil || len(c.VolumeDevices) > 0 || c.TerminationMessagePath != "" {
			problems = append(problems, fmt.Sprintf("container %+v", c))
		}
		if got := strings.Join(c.Command, " "); got != `cmd.exe /c C:\actions-runner\run.cmd` {
			problems = append(problems, "it runs "+got)
		}
		for _, e := range c.Env {
			if strings.HasPrefix(e.Value, "/") {
				problems = append(problems, fmt.Sprintf("variable %+v", e))
			}
		}
		for _, m := range c.VolumeMounts {
			if pool.Spec.Cache == nil || m.MountPath != pool.Spec.Cache.MountPath {
				problems = append(problems, fmt.Sprintf("mount %+v", m))
			}
		}
	}
	return problems
}

func TestWhatNeedsLinuxIsRefusedOnWindows(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(p *v1alpha1.RunnerPool)
		want   string
	}{
		"a Docker daemon": {func(p *v1alpha1.RunnerPool) {
			p.Spec.ContainerMode = &v1alpha1.ContainerMode{Type: v1alpha1.DockerMode}
		}, "spec.containerMode: must not be set with os.name windows"},
		"hooks": {func(p *v1alpha1.RunnerPool) {
			p.Spec.ContainerMode = &v1alpha1.ContainerMode{Type: v1alpha1.KubernetesNoVolumeMode}
		}, "spec.containerMode: must not be set with os.name windows"},
		"registering by a shell": {func(p *v1alpha1.RunnerPool) {
			p.Spec.Registration, p.Spec.Lifetime = v1alpha1.RegisterREST, v1alpha1.LifetimePersistent
			p.Spec.Template.Raw = []byte(`{"spec":{"os":{"name":"windows"},"containers":[{"name":"runner","image":"r"}]}}`)
		}, "spec.template.spec.containers[0].command: must be set with os.name windows"},
	} {
		pool := windowsExample(t)
		tc.change(pool)
		if _, err := podspec.Specimen(pool); err == nil || !strings.HasPrefix(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
