# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.template

import data.corral.library.allowed

# METADATA
# scope: rule
# title: Labels and annotations by name
# description: >-
#  A pod, and a claim that is made for it, must have no labels but Corral's, app.kubernetes.io/* and those of
#  data.library.metadata.labels, and no annotations but those that Corral sets and those of annotations.
# custom:
#  code: CORRAL-META-001
#  family: metadata
#  severity: medium
#  remediation: remove it, or have its key named in library.metadata
deny contains {"msg": sprintf("the pod has the label or annotation %s", [name]), "path": path} if {
	data.library.metadata
	some [path, name] in corral.unlisted(input.pod, allowed.metadata)
}
