// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

const (
	// cacheVolume is the volume with the claim of the pool's cache.
	cacheVolume = "corral-cache"
	// claimPrefix begins the names of all claims of caches, so that a template that names one is recognised.
	claimPrefix = "corral-cache-"
	// specimenClaim stands for the claim of any runner. It is no pool's: theirs end in a number.
	specimenClaim = claimPrefix + "specimen"
)

// Cache is what a pod gets of its pool's cache; without a claim, nothing.
type Cache struct{ Claim, MountPath string }

// ClaimName is the name of a claim of a pool's cache, by its number. There are as many names as there may be claims, so that no more
// than these can be made, whatever a cache shows.
func ClaimName(pool string, number int) string {
	return claimPrefix + pool + "-" + strconv.Itoa(number)
}

// SpecimenCache is what a specimen has of a cache; nil is none.
func SpecimenCache(spec *v1alpha1.CacheSpec) Cache {
	if spec == nil {
		return Cache{}
	}
	return Cache{Claim: specimenClaim, MountPath: spec.MountPath}
}

// mountCache gives the claim to the runner's container alone: no other writes to it.
func mountCache(spec *corev1.PodSpec, runner int, c Cache) error {
	if c.Claim == "" {
		return nil
	}
	container := &spec.Containers[runner]
	at := func(m corev1.VolumeMount) bool { return path.Clean(m.MountPath) == path.Clean(c.MountPath) }
	if i := slices.IndexFunc(container.VolumeMounts, at); i >= 0 {
		return fmt.Errorf("spec.cache.mountPath: the template mounts volume %q at %s, too (containers[%d].volumeMounts[%d]); choose another path",
			container.VolumeMounts[i].Name, c.MountPath, runner, i)
	}
	container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: cacheVolume, MountPath: c.MountPath})
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: cacheVolume, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c.Claim},
	}})
	return nil
}

// checkClaims refuses a volume in the place of the cache's, and claims of caches: one is a single runner's, and which it is, isn't up to a template.
func checkClaims(spec *corev1.PodSpec) error {
	for i, v := range spec.Volumes {
		if v.Name == cacheVolume {
			return fmt.Errorf("spec.template.spec.volumes[%d].name: %s is the volume of spec.cache; choose another name", i, cacheVolume)
		}
		if c := v.PersistentVolumeClaim; c != nil && strings.HasPrefix(c.ClaimName, claimPrefix) {
			return fmt.Errorf("spec.template.spec.volumes[%d].persistentVolumeClaim.claimName: claims named %s* are of pools' caches, each for one runner at a time; use spec.cache", i, claimPrefix)
		}
	}
	return cmp.Or(checkCacheMounts("containers", spec.Containers), checkCacheMounts("initContainers", spec.InitContainers))
}

// checkCacheMounts refuses mounts of the cache's volume: each container that has it writes to the claim, and may outlive the runner's.
func checkCacheMounts(field string, list []corev1.Container) error {
	for i, c := range list {
		for j, m := range c.VolumeMounts {
			if m.Name == cacheVolume {
				return fmt.Errorf("spec.template.spec.%s[%d].volumeMounts[%d].name: %s is the volume of spec.cache, which the runner's container alone has; remove the mount", field, i, j, cacheVolume)
			}
		}
	}
	return nil
}

// checkCacheMode refuses a cache that no step would see.
func checkCacheMode(pool *v1alpha1.RunnerPool) error {
	if mode := pool.Spec.ContainerMode; pool.Spec.Cache != nil && mode.UsesHooks() {
		return fmt.Errorf("spec.cache: must not be set with spec.containerMode.type %s: steps run in pods that the runner's hooks make, which don't have the claim; remove it, or choose type Docker", mode.Type)
	}
	return nil
}
