# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# scope: package
# title: Images
# description: Which images a pod names, and which of them are allowed.
package corral.library.images

# names of the pod's images: those of its containers, init containers and volumes.
names := corral.images(input.pod.spec)

# places(name) are where an image stands in the pod.
places(name) := {sprintf("spec.%s[%d].image", [kind, i]) |
	some kind in ["containers", "initContainers"]
	name == input.pod.spec[kind][i].image
} | {sprintf("spec.volumes[%d].image.reference", [i]) | name == input.pod.spec.volumes[i].image.reference}

# refused are the names that no pattern of data.library.images.allowed allows.
refused contains name if {
	data.library.images.allowed
	some name in names
	not strings.any_prefix_match(name, folders)
	not strings.any_prefix_match(concat("", [full(name), " "]), prefixes)
	not matched(name)
}

# undigested are the names without a digest.
undigested contains name if {
	some name in names
	not contains(name, "@sha256:")
	not contains(name, "@sha512:")
}

matched(name) if glob.match(globs[_], ["/"], full(name))

# Most patterns are folders, and most images begin with one as they are: then nothing has to be completed.
# What begins with a folder does so too once both are completed.
folders contains folder if {
	some pattern in data.library.images.allowed
	folder := trim_suffix(pattern, "*")
	endswith(folder, "/")
	not contains(folder, "*")
}

# What patterns without a * in their middle ask a full name to begin with. A name has a blank behind it here,
# and a pattern that isn't a folder ends where a part of the name does: ghcr.io/acme isn't the beginning of
# ghcr.io/acme-evil.
prefixes contains concat("", [pattern, end]) if {
	some pattern in patterns
	not contains(pattern, "*")
	some end in ends(pattern)
}

prefixes contains prefix if {
	some pattern in patterns
	endswith(pattern, "*")
	prefix := trim_suffix(pattern, "*")
	not contains(prefix, "*")
}

ends(pattern) := [""] if endswith(pattern, "/")

ends(pattern) := ["/", ":", "@", " "] if not endswith(pattern, "/")

# The other patterns. In their path, * goes on past a slash, which is ** in a glob.
globs contains concat("", [host, "/", replace(path, "*", "**"), end]) if {
	some pattern in patterns
	contains(trim_suffix(pattern, "*"), "*")
	[host, path] := halves(pattern)
	some end in glob_ends(pattern)
}

glob_ends(pattern) := ["**"] if {
	endswith(pattern, "/")
} else := [""] if {
	endswith(pattern, "*")
} else := ["", "/**", ":**", "@**"]

patterns contains full(pattern) if {
	some pattern in data.library.images.allowed
	pattern != "*"
}

patterns contains "*" if "*" in data.library.images.allowed

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
