# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# scope: package
# title: Images
# description: >-
#  Which images a pod names, and which of them are allowed. Each is looked at once, however many there are.
package corral.library.images

# names of the pod's images: those of its containers, init containers and volumes.
names := corral.images(input.pod.spec)

# places are all images, as [path, name].
places contains [sprintf("spec.%s[%d].image", [kind, i]), container.image] if {
	some kind in ["containers", "initContainers"]
	some i, container in input.pod.spec[kind]
}

places contains [sprintf("spec.volumes[%d].image.reference", [i]), volume.image.reference] if {
	some i, volume in input.pod.spec.volumes
}

# refused are the names that no pattern of data.library.images.allowed allows.
refused := {name |
	data.library.images.allowed
	some name in names
	not strings.any_prefix_match(name, folders)
	[host, path] := halves(full(name))
	count(corral.unlisted({host: path}, [[["*"], patterns]])) > 0
}

# folders are most patterns, and most images begin with one as they are: then nothing has to be completed. What begins with a
# folder does so too once both are completed.
folders contains folder if {
	some pattern in data.library.images.allowed
	folder := trim_suffix(pattern, "*")
	endswith(folder, "/")
	not contains(folder, "*")
}

# undigested are the names without a digest.
undigested := {name |
	some name in names
	not contains(name, "@sha256:")
	not contains(name, "@sha512:")
}

# remedy names what is allowed.
remedy := sprintf("use an image of %s", [concat(", ", data.library.images.allowed)])

# patterns are what is allowed, as HOST=PATH for corral.unlisted, so that * in a host doesn't go on past it. What doesn't end with a
# slash or * ends where a part of the name does: ghcr.io/acme doesn't allow ghcr.io/acme-evil.
patterns contains concat("", [host, "=", path, end]) if {
	some pattern in data.library.images.allowed
	pattern != "*"
	[host, path] := halves(full(pattern))
	some end in ends(pattern)
}

patterns contains "*" if "*" in data.library.images.allowed

ends(pattern) := ["*"] if endswith(pattern, "/")

ends(pattern) := [""] if endswith(pattern, "*")

ends(pattern) := ["", "/*", ":*", "@*"] if not regex.match("[/*]$", pattern)

# full(name) names the registry too, as who pulls the image would: docker.io if there is none, and
# there the folder library if there is no other.
full(name) := concat("", ["docker.io/", library(path)]) if {
	[host, path] := halves(name)
	host in {"docker.io", "index.docker.io"}
} else := name if {
	[host, _] := halves(name)
	registry(host)
} else := concat("", ["docker.io/", library(name)])

# library(path) is the path of an image of docker.io. A pattern may leave all of it open.
library(path) := concat("", ["library/", path]) if {
	not contains(path, "/")
	not path in {"", "*"}
} else := path

# registry(host) holds if the first part of a name is that of a registry.
registry(host) if contains(host, ".")

registry(host) if contains(host, ":")

registry(host) if contains(host, "*")

registry("localhost")

# halves(name) is its first part, and the rest; the first is empty if there is one only.
halves(name) := [substring(name, 0, slash), substring(name, slash + 1, -1)] if {
	slash := indexof(name, "/")
	slash >= 0
} else := ["", name]
