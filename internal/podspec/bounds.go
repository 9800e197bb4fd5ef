// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package podspec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// maxTemplateBytes is the maximum size of a template in bytes. Like v1alpha1.MaxContainers and MaxVolumes, it limits the
// cost of library policies, which grows with the template.
const maxTemplateBytes = 128 << 10

// Fits reports whether a template is not too large for a pool.
func Fits(template []byte) bool { return checkSize(template) == nil }

// checkSize refuses a template that is too large. Call it before processing the template.
func checkSize(template []byte) error {
	if len(template) > maxTemplateBytes {
		return fmt.Errorf("spec.template: it has %d bytes, more than %d: keep scripts and configuration in the image, or in ConfigMaps", len(template), maxTemplateBytes)
	}
	return nil
}

// checkCounts refuses templates with too many containers or volumes.
func checkCounts(spec *corev1.PodSpec) error {
	if n := len(spec.Containers) + len(spec.InitContainers); n > v1alpha1.MaxContainers {
		return fmt.Errorf("spec.template.spec.containers: %d containers and init containers, more than %d", n, v1alpha1.MaxContainers)
	}
	if n := len(spec.Volumes); n > v1alpha1.MaxVolumes {
		return fmt.Errorf("spec.template.spec.volumes: %d volumes, more than %d", n, v1alpha1.MaxVolumes)
	}
	return nil
}
