# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.template

import data.corral.library.allowed

# METADATA
# scope: rule
# title: Allowed extended resources
# description: >-
#  Containers may request only cpu, memory, ephemeral-storage and the resources in
#  data.library.extendedResources.allowed, and devices only through its claims.
# custom:
#  code: CORRAL-EXT-001
#  family: extendedResources
#  severity: high
#  remediation: remove the resource, or add it to library.extendedResources
deny contains {"msg": sprintf("the pod asks for %s", [name]), "path": sprintf("spec.%s", [path])} if {
	data.library.extendedResources
	some [path, name] in corral.unlisted(input.pod.spec, allowed.extended_resources)
}
