// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

const (
	// cacheVolume is the volume with the claim of the pool's cache.
	cacheVolume = "corral-cache"
	// claimPrefix is the prefix of the names of all cache claims, so that Corral can detect a template that references
	// one.
	claimPrefix = "corral-cache-"
	// SpecimenClaim is the name of the claim in a specimen. No real claim has it, because the names of real claims end
	// in a number.
	SpecimenClaim = claimPrefix + "specimen"
)

// ClaimName returns the name of a claim of a pool's cache, by its number. There are only as many names as the pool may
// have claims, so a controller with a stale cache cannot create too many.
func ClaimName(pool string, number int) string {
	return claimPrefix + pool + "-" + strconv.Itoa(number)
}

// MountsCache reports whether runners of a template mount a claim of their pool's cache.
func MountsCache(template []byte) bool {
	if !bytes.Contains(template, []byte(cacheVolume)) {
		return false
	}
	t, err := decode(template)
	return err == nil && slices.ContainsFunc(t.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == cacheVolume })
}

// mountCache replaces the placeholder volume in the template with the runner's claim, and reports whether it did. If
// the runner has no claim, it removes the volume.
func mountCache(spec *corev1.PodSpec, runner int, claim string) bool {
	i := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == cacheVolume })
	if i >= 0 && claim == "" {
		container := &spec.Containers[runner]
		spec.Volumes = slices.Delete(spec.Volumes, i, i+1)
		container.VolumeMounts = slices.DeleteFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == cacheVolume })
	}
	if i < 0 || claim == "" {
		return false
	}
	spec.Volumes[i].VolumeSource = corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}
	return true
}

// checkClaims refuses references to cache claims, and volumes with the name of the cache volume that Template did not
// add. Only one runner at a time may use a claim, so a template must not choose one.
func checkClaims(spec *corev1.PodSpec) error {
	for i, v := range spec.Volumes {
		if v.Name == cacheVolume && v.Ephemeral == nil {
			return fmt.Errorf("spec.template.spec.volumes[%d].name: %s is the volume of spec.cache; choose another name", i, cacheVolume)
		}
		if c := v.PersistentVolumeClaim; c != nil && strings.HasPrefix(c.ClaimName, claimPrefix) {
			return fmt.Errorf("spec.template.spec.volumes[%d].persistentVolumeClaim.claimName: claims named %s* belong to the caches of pools, and only one runner at a time may use each; use spec.cache", i, claimPrefix)
		}
	}
	return cmp.Or(checkCacheMounts("containers", spec.Containers, v1alpha1.RunnerContainerName), checkCacheMounts("initContainers", spec.InitContainers, ""))
}

// checkCacheMounts refuses mounts of the cache volume, except in the container that but names. Another container with
// the mount could write to the claim after the runner's container ended.
func checkCacheMounts(field string, list []corev1.Container, but string) error {
	for i, c := range list {
		for j, m := range c.VolumeMounts {
			if m.Name == cacheVolume && c.Name != but {
				return fmt.Errorf("spec.template.spec.%s[%d].volumeMounts[%d].name: %s is the volume of spec.cache, and only the runner's container may mount it; remove the mount", field, i, j, cacheVolume)
			}
		}
	}
	return nil
}

// checkCacheMode refuses a cache if the runner's hooks run the steps of jobs in other pods, which do not mount the
// claim.
func checkCacheMode(pool *v1alpha1.RunnerPool) error {
	if mode := pool.Spec.ContainerMode; pool.Spec.Cache != nil && mode.UsesHooks() {
		return fmt.Errorf("spec.cache: must not be set with spec.containerMode.type %s: the runner's hooks run steps in other pods, which do not have the claim; remove it, or choose type Docker", mode.Type)
	}
	return nil
}
