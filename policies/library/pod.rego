# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# scope: package
# title: Containers of a pod
# description: >-
#  A helper for rules that users write. It needs no setting in spec.library.
package corral.pod

# containers holds every container of the pod by its path, such as spec.initContainers[0]. Sidecars are init containers.
containers[sprintf("spec.containers[%d]", [i])] := container if {
	some i, container in input.pod.spec.containers
}

containers[sprintf("spec.initContainers[%d]", [i])] := container if {
	some i, container in input.pod.spec.initContainers
}

containers[sprintf("spec.ephemeralContainers[%d]", [i])] := container if {
	some i, container in input.pod.spec.ephemeralContainers
}
