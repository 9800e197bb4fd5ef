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

# exceeding are the resources of data.library.resources.maxPerPod that the pod takes more of. If all containers together
# don't, whether side by side or not, nothing has to be told apart.
exceeding contains name if {
	some name, most in data.library.resources.maxPerPod
	parts := [amount(part) |
		resources := input.pod.spec[["containers", "initContainers"][_]][_].resources
		part := object.get(resources, ["limits", name], object.get(resources, ["requests", name], "0"))
	]
	sum(parts) > amount(most)
	total(name) > amount(most)
}

exceeding contains name if {
	input.pod.spec[["resources", "overhead"][_]]
	some name, most in data.library.resources.maxPerPod
	total(name) > amount(most)
}

# total(name) is the most of a resource that the pod says it takes, in thousandths: of each container its limit,
# or without one its request, added up as Kubernetes does.
total(name) := amount(input.pod.spec.resources.limits[name]) + overhead(name)

total(name) := max({declared, together(name)}) + overhead(name) if {
	not input.pod.spec.resources.limits[name]
	declared := amount(object.get(input.pod.spec, ["resources", "requests", name], 0))
}

overhead(name) := amount(object.get(input.pod.spec, ["overhead", name], 0))

# together(name) is what the containers take: those that run side by side, or if it is more, an init container
# with what was started before it and goes on.
together(name) := max(peaks | {main}) if {
	early := parts("initContainers", name)
	main := sum(parts("containers", name)) + sum([early[i] | some i in sidecars])
	peaks := {peak |
		some i, own in early
		not i in sidecars
		peak := own + sum([early[j] | some j in sidecars; j < i])
	}
}

# sidecars are the indices of init containers that go on beside the others.
sidecars contains i if {
	some i, container in input.pod.spec.initContainers
	container.restartPolicy == "Always"
}

# parts(field, name) are those of all containers, in thousandths: the limit counts, or else the request.
parts(field, name) := [amount(part) |
	some container in object.get(input.pod.spec, field, [])
	resources := object.get(container, "resources", {})
	part := object.get(resources, ["limits", name], object.get(resources, ["requests", name], "0"))
]

# amount(quantity) is a Kubernetes quantity in thousandths: whole numbers can be added without error. (units.parse is slow
# with m, and doesn't know n and u; units.parse_bytes takes m for a million.)
amount(quantity) := to_number(trim_suffix(quantity, "m")) if {
	is_string(quantity)
	endswith(quantity, "m")
} else := round(units.parse(quantity) * 1000) if {
	is_string(quantity)
	not strings.any_suffix_match(quantity, ["n", "u"])
} else := round(to_number(trim_suffix(quantity, "u")) / 1000) if {
	is_string(quantity)
	endswith(quantity, "u")
} else := round(to_number(trim_suffix(quantity, "n")) / 1000000) if {
	is_string(quantity)
} else := round(quantity * 1000)

# shown(thousandths) is an amount as people write it.
shown(thousandths) := sprintf("%dm", [thousandths]) if thousandths % 1000 != 0

shown(thousandths) := format_int(thousandths / 1000, 10) if thousandths % 1000 == 0
