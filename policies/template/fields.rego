# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.template

import data.corral.library.allowed

# METADATA
# scope: rule
# title: Only common fields
# description: >-
#  A pod and its containers may set only common fields, fields that other families check, and fields in
#  data.library.fields.allowed. This excludes host aliases, DNS settings, shared processes, lifecycle hooks, probes that
#  run commands, and fields that this version does not know.
# custom:
#  code: CORRAL-FIELD-001
#  family: fields
#  severity: medium
#  remediation: remove the field, or add it to library.fields.allowed
deny contains {"msg": sprintf("the pod sets %s", [name]), "path": sprintf("spec.%s", [path])} if {
	data.library.fields
	some [path, name] in corral.unlisted(input.pod.spec, allowed.fields)
}
