# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.template

import data.corral.library.images

# METADATA
# scope: rule
# title: Images of allowed registries only
# description: >-
#  The image of each container, init container and image volume must be one of data.library.images.allowed.
#  Names are completed first, as a container runtime does: alpine is docker.io/library/alpine.
# custom:
#  code: CORRAL-IMG-001
#  family: images
deny contains {
	"msg": sprintf("image %s is not of an allowed registry or repository", [name]),
	"path": path,
	"code": "CORRAL-IMG-001",
	"severity": "high",
	"remediation": images.remedy,
} if {
	count(images.refused) > 0
	some [path, name] in images.places
	name in images.refused
}

# METADATA
# scope: rule
# title: Images with a digest
# description: >-
#  With data.library.images.requireDigest, each image must have a digest, so that Corral evaluates exactly the image that runs.
# custom:
#  code: CORRAL-IMG-002
#  family: images
deny contains {
	"msg": sprintf("image %s is not named by its digest", [name]),
	"path": path,
	"code": "CORRAL-IMG-002",
	"severity": "medium",
	"remediation": "add the digest of the image: name:tag@sha256:…",
} if {
	data.library.images.requireDigest
	count(images.undigested) > 0
	some [path, name] in images.places
	name in images.undigested
}
