# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# scope: package
# title: Resources
# description: What a pod's containers ask for, and what that comes to.
package corral.library.resources

# distinct are the resources of all containers, each once: most containers of a pod have the same.
distinct := {object.get(container, "resources", {}) |
	container := input.pod.spec[["containers", "initContainers"][_]][_]
}

# unrequested are the resources of data.library.resources.requireRequests that some container is without. A limit
# without a request is the request too; what the whole pod has, each container has.
unrequested contains name if {
	some name in data.library.resources.requireRequests
	some resources in distinct
	not resources.requests[name]
	not resources.limits[name]
	not input.pod.spec.resources.requests[name]
	not input.pod.spec.resources.limits[name]
}

# unlimited are those of data.library.resources.requireLimits.
unlimited contains name if {
	some name in data.library.resources.requireLimits
	some resources in distinct
	not resources.limits[name]
	not input.pod.spec.resources.limits[name]
}

# containers are all of them, as [path, container, resources].
containers contains [sprintf("spec.%s[%d]", [kind, i]), container, object.get(container, "resources", {})] if {
	some kind in ["containers", "initContainers"]
	some i, container in input.pod.spec[kind]
}

# exceeding is what the pod takes of the resources of data.library.resources.maxPerPod that it takes too much of, in
# thousandths.
exceeding[name] := total if {
	totals := corral.pod_resources(input.pod.spec)
	some name, most in data.library.resources.maxPerPod
	total := totals[name]
	total > corral.quantity(most)
}

# shown(thousandths) is an amount as people write it.
shown(thousandths) := sprintf("%dm", [thousandths]) if thousandths % 1000 != 0

shown(thousandths) := format_int(thousandths / 1000, 10) if thousandths % 1000 == 0
