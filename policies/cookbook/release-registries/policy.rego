# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# scope: package
# title: Release pools run only signed-off images
# description: |
#  Pools with `trust: release` may only use images from the registries to which signed-off images are copied, and must use
#  digests. End each prefix with a slash, because the prefix `registry.acme.example/release` would also match
#  `registry.acme.example/released-by-eve`.
# custom:
#  kind: ClusterRunnerPolicy
#  parameters:
#   registries: [registry.acme.example/release/]
package corral.template

# METADATA
# title: Images of a release pool are signed off
# custom:
#  code: ACME-RELEASE-1
deny contains {
	"msg": sprintf("image %s of a release pool is not signed off", [container.image]),
	"path": sprintf("spec.%s[%d].image", [kind, i]),
	"code": "ACME-RELEASE-1",
	"remediation": sprintf("use an image of %s, with its digest", [concat(", ", data.parameters.registries)]),
} if {
	input.pool.trust == "release"
	some kind in ["containers", "initContainers"]
	some i, container in input.pod.spec[kind]
	not signed_off(container.image)
}

signed_off(image) if {
	strings.any_prefix_match(image, data.parameters.registries)
	contains(image, "@sha256:")
}
