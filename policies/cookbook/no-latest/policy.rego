# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# scope: package
# title: No images with the tag latest
# description: |
#  Every image must have a tag other than `latest`, or a digest. Otherwise, the same revision of a pool may use a different
#  image tomorrow, and Corral cannot roll back to the previous image.
# custom:
#  kind: RunnerPolicy
package corral.template

# METADATA
# title: Images have a version
# custom:
#  code: ACME-IMAGE-1
deny contains {
	"msg": sprintf("image %s has no version", [container.image]),
	"path": sprintf("spec.%s[%d].image", [kind, i]),
	"code": "ACME-IMAGE-1",
	"remediation": "name a tag other than latest, or a digest",
} if {
	some kind in ["containers", "initContainers"]
	some i, container in input.pod.spec[kind]
	not versioned(container.image)
}

versioned(image) if contains(image, "@")

# Only a colon after the last slash begins a tag: one before it begins the port of the registry.
versioned(image) if {
	parts := split(image, "/")
	[_, tag] := split(parts[count(parts) - 1], ":")
	tag != "latest"
}
