// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package podspec_test

import (
	"strings"
	"testing"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/podspec"
)

func TestTheClaimIsMountedInTheRunnersContainerAlone(t *testing.T) {
	r := runner
	r.Cache = podspec.Cache{Claim: podspec.ClaimName("linux", 3), MountPath: "/home/runner/.cache"}
	pod, err := podspec.Build(r, []byte(`{"spec": {"initContainers": [{"name": "a", "image": "a"}], "containers": [{"name": "dind", "image": "d"}, {"name": "runner", "image": "r"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
		switch mounts := c.VolumeMounts; {
		case c.Name != "runner" && len(mounts) > 0:
			t.Errorf("%s mounts %v", c.Name, mounts)
		case c.Name == "runner" && (len(mounts) != 1 || mounts[0].MountPath != "/home/runner/.cache"):
			t.Errorf("the runner mounts %v", mounts)
		}
	}
	if v := pod.Spec.Volumes; len(v) != 1 || v[0].PersistentVolumeClaim.ClaimName != "corral-cache-linux-3" || pod.Annotations[v1alpha1.CacheClaimAnnotation] != "corral-cache-linux-3" {
		t.Errorf("volumes %v, annotations %v", v, pod.Annotations)
	}
}

func TestATemplateInTheWayOfTheCacheIsRefused(t *testing.T) {
	cache := podspec.SpecimenCache(&v1alpha1.CacheSpec{MountPath: "/cache"})
	for template, want := range map[string]string{
		`{"spec": {"volumes": [{"name": "v", "emptyDir": {}}], "containers": [{"name": "runner", "volumeMounts": [{"name": "v", "mountPath": "/cache/"}]}]}}`:   `spec.cache.mountPath: the template mounts volume "v" at /cache, too (containers[0].volumeMounts[0]); choose another path`,
		`{"spec": {"volumes": [{"name": "v", "emptyDir": {}}], "containers": [{"name": "runner", "volumeMounts": [{"name": "v", "mountPath": "/cache/go"}]}]}}`: "",
		`{"spec": {"volumes": [{"name": "corral-cache", "emptyDir": {}}], "containers": [{"name": "runner"}]}}`:                                                 "spec.template.spec.volumes[0].name: corral-cache is the volume of spec.cache; choose another name",
		`{"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "corral-cache-other-0"}}], "containers": [{"name": "runner"}]}}`:            "spec.template.spec.volumes[0].persistentVolumeClaim.claimName: claims named corral-cache-*",
		`{"spec": {"containers": [{"name": "runner"}, {"name": "spy", "volumeMounts": [{"name": "corral-cache", "mountPath": "/x"}]}]}}`:                        "spec.template.spec.containers[1].volumeMounts[0].name: corral-cache is the volume of spec.cache, which the runner's container alone has; remove the mount",
		`{"spec": {"initContainers": [{"name": "spy", "volumeMounts": [{"name": "corral-cache", "mountPath": "/x"}]}], "containers": [{"name": "runner"}]}}`:    "spec.template.spec.initContainers[0].volumeMounts[0].name: corral-cache",
		`{"spec": {"containers": [{"name": "runner", "volumeMounts": [{"name": "corral-cache", "mountPath": "/x"}]}]}}`:                                         "spec.template.spec.containers[0].volumeMounts[0].name: corral-cache",
		`{"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "shared"}}], "containers": [{"name": "runner"}]}}`:                          "",
	} {
		r := runner
		r.Cache = cache
		_, err := podspec.Build(r, []byte(template))
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%s: %v", template, err)
		}
	}
}

func TestASpecimenHasAPlaceholderForItsClaim(t *testing.T) {
	pool := &v1alpha1.RunnerPool{}
	pool.Name, pool.Spec.Template.Raw = "linux", []byte(`{"spec": {"containers": [{"name": "runner"}]}}`)
	pool.Spec.Cache = &v1alpha1.CacheSpec{MountPath: "/cache"}
	pod, err := podspec.Specimen(pool)
	if err != nil || len(pod.Spec.Volumes) != 1 || pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != "corral-cache-specimen" {
		t.Errorf("%v, %v", pod, err)
	}
}

// Steps run in pods that the hooks make, which never have the claim.
func TestACacheAndHooksExcludeEachOther(t *testing.T) {
	for mode, want := range map[v1alpha1.ContainerModeType]string{
		v1alpha1.KubernetesMode:         "spec.cache: must not be set with spec.containerMode.type Kubernetes: ",
		v1alpha1.KubernetesNoVolumeMode: "spec.cache: must not be set with spec.containerMode.type KubernetesNoVolume: ",
		v1alpha1.DockerMode:             "",
	} {
		pool := &v1alpha1.RunnerPool{}
		pool.Name, pool.Spec.Template.Raw = "linux", []byte(`{"spec": {"containers": [{"name": "runner", "image": "r"}]}}`)
		pool.Spec.Cache, pool.Spec.ContainerMode = &v1alpha1.CacheSpec{MountPath: "/cache"}, &v1alpha1.ContainerMode{Type: mode}
		_, err := podspec.Template(pool)
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%s: %v", mode, err)
		}
	}
}
