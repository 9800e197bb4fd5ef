// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package podspec_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/podspec"
)

// cached returns the template for runners of a pool with a cache.
func cached(t *testing.T, declared string, c *v1alpha1.CacheSpec) []byte {
	t.Helper()
	pool := &v1alpha1.RunnerPool{}
	pool.Name, pool.Spec.Template.Raw, pool.Spec.Cache = "linux", []byte(declared), c
	template, err := podspec.Template(pool)
	if err != nil {
		t.Fatal(err)
	}
	return template
}

// The revision covers what a runner's pod mounts, but not how many claims there may be and for how long.
func TestTheCacheIsPartOfTheRevision(t *testing.T) {
	const declared = `{"spec": {"containers": [{"name": "runner", "image": "r"}]}}`
	digest := func(c *v1alpha1.CacheSpec) string {
		d, err := podspec.Digest(cached(t, declared, c))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	before := v1alpha1.CacheSpec{Size: "1Gi", MountPath: "/cache", MaxClaims: 1}
	for name, tc := range map[string]struct {
		change func(c *v1alpha1.CacheSpec)
		same   bool
	}{
		"nothing":     {func(*v1alpha1.CacheSpec) {}, true},
		"how many":    {func(c *v1alpha1.CacheSpec) { c.MaxClaims = 9 }, true},
		"how long":    {func(c *v1alpha1.CacheSpec) { c.TimeToLive = &metav1.Duration{Duration: time.Hour} }, true},
		"to wait":     {func(c *v1alpha1.CacheSpec) { c.OnMissing = v1alpha1.WaitForClaim }, true},
		"the default": {func(c *v1alpha1.CacheSpec) { c.AccessMode = v1alpha1.DefaultCacheAccessMode }, true},
		"where":       {func(c *v1alpha1.CacheSpec) { c.MountPath = "/other" }, false},
		"size":        {func(c *v1alpha1.CacheSpec) { c.Size = "2Gi" }, false},
		"class":       {func(c *v1alpha1.CacheSpec) { c.StorageClassName = "fast" }, false},
		"access":      {func(c *v1alpha1.CacheSpec) { c.AccessMode = "ReadWriteMany" }, false},
	} {
		after := before
		tc.change(&after)
		if same := digest(&before) == digest(&after); same != tc.same {
			t.Errorf("%s: the same revision is %t", name, same)
		}
	}
	if digest(&before) == digest(nil) {
		t.Error("a pool without a cache has the same revision")
	}
}

func TestWithoutAClaimThereIsNoVolume(t *testing.T) {
	template := cached(t, `{"spec": {"containers": [{"name": "runner", "image": "r"}]}}`, &v1alpha1.CacheSpec{Size: "1Gi", MountPath: "/cache"})
	pod, err := podspec.Build(runner, template)
	if err != nil || len(pod.Spec.Volumes)+len(pod.Spec.Containers[0].VolumeMounts) > 0 || pod.Annotations[v1alpha1.CacheClaimAnnotation] != "" {
		t.Errorf("%v, %v", pod, err)
	}
	if !podspec.MountsCache(template) || podspec.MountsCache([]byte(`{"metadata": {"annotations": {"note": "corral-cache"}}, "spec": {"containers": [{"name": "runner"}]}}`)) {
		t.Error("which template mounts a cache")
	}
	r := runner
	r.Claim = "corral-cache-linux-0" // from an earlier revision, which had a cache
	if pod, err = podspec.Build(r, []byte(`{"spec": {"containers": [{"name": "runner"}]}}`)); err != nil || pod.Annotations[v1alpha1.CacheClaimAnnotation] != "" {
		t.Errorf("%v, %v", pod, err)
	}
}

func TestTheClaimIsMountedInTheRunnersContainerAlone(t *testing.T) {
	template := cached(t, `{"spec": {"initContainers": [{"name": "a", "image": "a"}], "containers": [{"name": "dind", "image": "d"}, {"name": "runner", "image": "r"}]}}`,
		&v1alpha1.CacheSpec{Size: "1Gi", MountPath: "/home/runner/.cache"})
	r := runner
	r.Claim = podspec.ClaimName("linux", 3)
	pod, err := podspec.Build(r, template)
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
	for template, want := range map[string]string{
		`{"spec": {"volumes": [{"name": "v", "emptyDir": {}}], "containers": [{"name": "runner", "volumeMounts": [{"name": "v", "mountPath": "/cache/"}]}]}}`:   `spec.cache.mountPath: the template mounts volume "v" at /cache, too (containers[0].volumeMounts[0]); choose another path`,
		`{"spec": {"volumes": [{"name": "v", "emptyDir": {}}], "containers": [{"name": "runner", "volumeMounts": [{"name": "v", "mountPath": "/cache/go"}]}]}}`: "",
		`{"spec": {"volumes": [{"name": "corral-cache", "ephemeral": {}}], "containers": [{"name": "runner"}]}}`:                                                "spec.template.spec.volumes[0].name: corral-cache is the volume of spec.cache; choose another name",
		`{"spec": {"volumes": [{"name": "corral-cache", "emptyDir": {}}], "containers": [{"name": "runner"}]}}`:                                                 "spec.template.spec.volumes[0].name: corral-cache is the volume of spec.cache; choose another name",
		`{"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "corral-cache-other-0"}}], "containers": [{"name": "runner"}]}}`:            "spec.template.spec.volumes[0].persistentVolumeClaim.claimName: claims named corral-cache-*",
		`{"spec": {"containers": [{"name": "runner"}, {"name": "spy", "volumeMounts": [{"name": "corral-cache", "mountPath": "/x"}]}]}}`:                        "spec.template.spec.containers[1].volumeMounts[0].name: corral-cache is the volume of spec.cache, and only the runner's container may mount it; remove the mount",
		`{"spec": {"initContainers": [{"name": "spy", "volumeMounts": [{"name": "corral-cache", "mountPath": "/x"}]}], "containers": [{"name": "runner"}]}}`:    "spec.template.spec.initContainers[0].volumeMounts[0].name: corral-cache",
		`{"spec": {"containers": [{"name": "runner", "volumeMounts": [{"name": "corral-cache", "mountPath": "/x"}]}]}}`:                                         "spec.template.spec.containers[0].volumeMounts[0].name: corral-cache",
		`{"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "shared"}}], "containers": [{"name": "runner"}]}}`:                          "",
	} {
		pool := &v1alpha1.RunnerPool{}
		pool.Name, pool.Spec.Template.Raw, pool.Spec.Cache = "linux", []byte(template), &v1alpha1.CacheSpec{Size: "1Gi", MountPath: "/cache"}
		_, err := podspec.Specimen(pool)
		if want != "" && !strings.HasPrefix(want, "spec.cache") {
			pool.Spec.Cache = nil
			if _, plain := podspec.Specimen(pool); plain == nil || !strings.HasPrefix(plain.Error(), want) {
				t.Errorf("without a cache, %s: %v", template, plain)
			}
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%s: %v", template, err)
		}
	}
}

// A claim that is mounted over the runner or its system hides them: no runner would start.
func TestACacheInThePlaceOfTheRunnerIsRefused(t *testing.T) {
	for at, refused := range map[string]bool{
		"/home/runner": true, "/home": true, "/usr": true, "/home/runner/bin": true, "/home/runner/./externals/": true, "/etc": true,
		"/home/runner/.cache": false, "/home/runner/_work/_tool": false, "/usr/local/cache": false, "/bin/x": false, "/cache": false,
	} {
		pool := poolOf(t, "cache: {size: 1Gi, maxClaims: 1, mountPath: "+at+"}"+plainTemplate)
		if _, err := podspec.Template(pool); refused != (err != nil && strings.HasPrefix(err.Error(), "spec.cache.mountPath: "+at+" belongs to the runner or its operating system; choose another")) {
			t.Errorf("%s: %v", at, err)
		}
	}
}

func TestASpecimenHasAPlaceholderForItsClaim(t *testing.T) {
	pool := &v1alpha1.RunnerPool{}
	pool.Name, pool.Spec.Template.Raw = "linux", []byte(`{"spec": {"containers": [{"name": "runner"}]}}`)
	pool.Spec.Cache = &v1alpha1.CacheSpec{Size: "1Gi", MountPath: "/cache"}
	pod, err := podspec.Specimen(pool)
	if err != nil || len(pod.Spec.Volumes) != 1 || pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != "corral-cache-specimen" {
		t.Errorf("%v, %v", pod, err)
	}
}

// Steps run in pods that the hooks create, which never have the claim.
func TestACacheAndHooksExcludeEachOther(t *testing.T) {
	for mode, want := range map[v1alpha1.ContainerModeType]string{
		v1alpha1.KubernetesMode:         "spec.cache: must not be set with spec.containerMode.type Kubernetes: ",
		v1alpha1.KubernetesNoVolumeMode: "spec.cache: must not be set with spec.containerMode.type KubernetesNoVolume: ",
		v1alpha1.DockerMode:             "",
	} {
		pool := &v1alpha1.RunnerPool{}
		pool.Name, pool.Spec.Template.Raw = "linux", []byte(`{"spec": {"containers": [{"name": "runner", "image": "r"}]}}`)
		pool.Spec.Cache, pool.Spec.ContainerMode = &v1alpha1.CacheSpec{Size: "1Gi", MountPath: "/cache"}, &v1alpha1.ContainerMode{Type: mode}
		_, err := podspec.Template(pool)
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%s: %v", mode, err)
		}
	}
}
