# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# scope: package
# title: Resources
# description: What a pod's containers ask for, and what that comes to.
package corral.library.resources

# unrequested are the resources of data.library.resources.requireRequests that some container is without. A limit
# without a request is the request too; what the whole pod has, each container has.
unrequested := corral.missing(input.pod.spec, data.library.resources.requireRequests, ["requests", "limits"])

# unlimited are those of data.library.resources.requireLimits.
unlimited := corral.missing(input.pod.spec, data.library.resources.requireLimits, ["limits"])

# containers are all of them, as [path, container, resources].
containers contains [sprintf("spec.%s[%d]", [kind, i]), container, object.get(container, "resources", {})] if {
	some kind in ["containers", "initContainers"]
	some i, container in input.pod.spec[kind]
}

# exceeding is what the pod takes of the resources of data.library.resources.maxPerPod that it takes too much of, in
# thousandths.
exceeding := corral.exceeding(input.pod.spec, data.library.resources.maxPerPod)

# shown(thousandths) is an amount as people write it.
shown(thousandths) := sprintf("%dm", [thousandths]) if thousandths % 1000 != 0

shown(thousandths) := format_int(thousandths / 1000, 10) if thousandths % 1000 == 0
