# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# scope: package
# title: Resources
# description: The requests and limits of a pod's containers, and their totals.
package corral.library.resources

# unrequested contains the resources of data.library.resources.requireRequests that some container does not request. A
# limit without a request counts as a request. Requests and limits of the whole pod count for each container.
unrequested := corral.missing(input.pod.spec, data.library.resources.requireRequests, ["requests", "limits"])

# unlimited contains the resources of data.library.resources.requireLimits for which some container has no limit.
unlimited := corral.missing(input.pod.spec, data.library.resources.requireLimits, ["limits"])

# containers contains all containers and init containers, as [path, container, resources].
containers contains [sprintf("spec.%s[%d]", [kind, i]), container, object.get(container, "resources", {})] if {
	some kind in ["containers", "initContainers"]
	some i, container in input.pod.spec[kind]
}

# exceeding contains the total of each resource for which the pod exceeds data.library.resources.maxPerPod, in
# thousandths.
exceeding := corral.exceeding(input.pod.spec, data.library.resources.maxPerPod)

# shown(thousandths) formats an amount as a quantity.
shown(thousandths) := sprintf("%dm", [thousandths]) if thousandths % 1000 != 0

shown(thousandths) := format_int(thousandths / 1000, 10) if thousandths % 1000 == 0
