# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.template

import data.corral.library.allowed

# METADATA
# scope: rule
# title: Allowed labels and annotations
# description: >-
#  A pod, and a claim that Kubernetes creates for it, may have only Corral's labels, app.kubernetes.io/* and
#  data.library.metadata.labels, and only annotations that Corral sets or that data.library.metadata.annotations allows.
# custom:
#  code: CORRAL-META-001
#  family: metadata
#  severity: medium
#  remediation: remove it, or add its key to library.metadata
deny contains {"msg": sprintf("the pod has the label or annotation %s", [name]), "path": path} if {
	data.library.metadata
	some [path, name] in corral.unlisted(input.pod, allowed.metadata)
}
