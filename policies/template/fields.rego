# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.template

import data.corral.library.allowed

# METADATA
# scope: rule
# title: Few fields
# description: >-
#  A pod and its containers must set no fields but those that most need, those that other families judge, and those of
#  data.library.fields.allowed: so no host aliases, DNS of their own, shared processes, lifecycle hooks, probes that run
#  commands, or fields that this version doesn't know.
# custom:
#  code: CORRAL-FIELD-001
#  family: fields
#  severity: medium
#  remediation: remove the field, or have it named in library.fields.allowed
deny contains {"msg": sprintf("the pod sets %s", [name]), "path": sprintf("spec.%s", [path])} if {
	data.library.fields
	some [path, name] in corral.unlisted(input.pod.spec, allowed.fields)
}
