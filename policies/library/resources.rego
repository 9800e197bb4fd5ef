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

# exceeds(name, most) holds if the pod takes more of a resource than most. If it wouldn't even if each container
# took as much as the largest, nothing has to be added up.
exceeds(name, most) if {
	not modest(name, most)
	total(name) > amount(most)
}

modest(name, most) if {
	not input.pod.spec.resources
	not input.pod.spec.overhead
	quantities := {object.get(resources, ["limits", name], object.get(resources, ["requests", name], "0")) |
		some resources in distinct
	}
	plain(quantities | {most})
	size * max({units.parse(quantity) | some quantity in quantities}) <= units.parse(most)
}

# plain(quantities) holds if they are all strings, which are more than numbers, that units.parse knows.
plain(quantities) if {
	min(quantities) >= ""
	not strings.any_suffix_match(quantities, ["n", "u"])
}

# size is how many containers there are.
size := count(input.pod.spec.containers) + count(input.pod.spec.initContainers)

size := count(input.pod.spec.containers) if not input.pod.spec.initContainers

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

# part(resources, name) is the quantity that counts: the limit, or else the request.
part(resources, name) := object.get(resources, ["limits", name], object.get(resources, ["requests", name], "0"))

# parts(field, name) are those of all containers, in thousandths.
parts(field, name) := [amount(part(object.get(container, "resources", {}), name)) |
	some container in object.get(input.pod.spec, field, [])
]

# amount(quantity) is a Kubernetes quantity in thousandths: whole numbers can be added without error. (For
# units.parse_bytes the m of Kubernetes, a thousandth, is a million.)
amount(quantity) := round(units.parse(quantity) * 1000) if {
	is_string(quantity)
	not strings.any_suffix_match(quantity, ["n", "u"])
} else := ceil(to_number(trim_right(quantity, "nu")) / parts_of_thousandth[substring(quantity, count(quantity) - 1, 1)]) if {
	is_string(quantity)
} else := round(quantity * 1000)

parts_of_thousandth := {"n": 1000000, "u": 1000}

# shown(thousandths) is an amount as people write it.
shown(thousandths) := sprintf("%dm", [thousandths]) if thousandths % 1000 != 0

shown(thousandths) := format_int(thousandths / 1000, 10) if thousandths % 1000 == 0
