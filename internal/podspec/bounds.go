// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Bounds of a template. What policies of the library take grows with them, and nothing else stops those.
const (
	maxTemplateBytes = 128 << 10
	maxContainers    = 64 // init containers included
	maxVolumes       = 128
)

// Fits reports whether a pool may have a template of that size.
func Fits(template []byte) bool { return checkSize(template) == nil }

// checkSize refuses templates that are too large, before anything is done with them.
func checkSize(template []byte) error {
	if len(template) > maxTemplateBytes {
		return fmt.Errorf("spec.template: it has %d bytes, more than %d: keep scripts and configuration in the image, or in ConfigMaps", len(template), maxTemplateBytes)
	}
	return nil
}

// checkCounts refuses templates with too many of something.
func checkCounts(spec *corev1.PodSpec) error {
	if n := len(spec.Containers) + len(spec.InitContainers); n > maxContainers {
		return fmt.Errorf("spec.template.spec.containers: %d containers and init containers, more than %d", n, maxContainers)
	}
	if n := len(spec.Volumes); n > maxVolumes {
		return fmt.Errorf("spec.template.spec.volumes: %d volumes, more than %d", n, maxVolumes)
	}
	return nil
}
