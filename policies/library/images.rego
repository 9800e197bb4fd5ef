# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# scope: package
# title: Images
# description: >-
#  The images of a pod, and which of them are allowed. Each distinct image is checked only once.
package corral.library.images

# names are the distinct image names of the pod's containers, init containers and volumes.
names := corral.images(input.pod.spec)

# places contains every use of an image, as [path, name].
places contains [sprintf("spec.%s[%d].image", [kind, i]), container.image] if {
	some kind in ["containers", "initContainers"]
	some i, container in input.pod.spec[kind]
}

places contains [sprintf("spec.volumes[%d].image.reference", [i]), volume.image.reference] if {
	some i, volume in input.pod.spec.volumes
}

# refused contains the names that match no pattern of data.library.images.allowed.
refused := {name |
	data.library.images.allowed
	some name in names
	not strings.any_prefix_match(name, folders)
	[host, path] := halves(corral.image_name(name))
	count(corral.unlisted({host: path}, [[["*"], patterns]])) > 0
}

# folders contains the patterns that end with a slash. This is a shortcut: most image names begin with such a pattern as they are,
# without completing either. A name that begins with a folder also begins with it when both are completed.
folders contains folder if {
	some pattern in data.library.images.allowed
	folder := trim_suffix(pattern, "*")
	endswith(folder, "/")
	not contains(folder, "*")
}

# undigested contains the names without a digest.
undigested := {name |
	some name in names
	not contains(name, "@sha256:")
	not contains(name, "@sha512:")
}

# remedy lists the allowed images.
remedy := sprintf("use an image of %s", [concat(", ", data.library.images.allowed)])

# patterns are the allowed images as HOST=PATH for corral.unlisted, so that * in a host matches only the host. A pattern that does
# not end with a slash or * must end at the end of a part of the name: ghcr.io/acme does not allow ghcr.io/acme-evil.
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

# full(name) is a pattern with the registry that a name without one has: docker.io, and there the folder library.
full(name) := concat("", ["docker.io/", library(path)]) if {
	[host, path] := halves(name)
	host in {"docker.io", "index.docker.io"}
} else := name if {
	[host, _] := halves(name)
	registry(host)
} else := concat("", ["docker.io/", library(name)])

# library(path) is the complete path of an image on docker.io. The path of a pattern can be empty or *.
library(path) := concat("", ["library/", path]) if {
	not contains(path, "/")
	not path in {"", "*"}
} else := path

# registry(host) holds if the first part of a pattern names a registry, by the same rule as in an image name.
registry(host) if contains(host, "*")

registry(host) if startswith(corral.image_name(concat("/", [host, "a"])), concat("", [host, "/"]))

# halves(name) splits a name at the first slash. Without a slash, the first half is empty.
halves(name) := [substring(name, 0, slash), substring(name, slash + 1, -1)] if {
	slash := indexof(name, "/")
	slash >= 0
} else := ["", name]
