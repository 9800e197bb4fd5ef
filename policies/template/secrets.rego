# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.template

import data.corral.library.allowed

# METADATA
# scope: rule
# title: Secrets by name
# description: >-
#  A pod may read only Secrets in data.library.secrets.allowed and the Secret of its own registration. This applies to
#  variables, volumes, projections, image pulls, and storage drivers with their attributes.
# custom:
#  code: CORRAL-SEC-001
#  family: secrets
#  severity: high
#  remediation: remove the reference, or add the Secret to library.secrets.allowed
#  only_with: [secretKeyRef, secretRef, secretName, secret, nodePublishSecretRef, imagePullSecrets, volumeAttributes, options]
deny contains {"msg": sprintf("the pod reads the Secret %s", [name]), "path": sprintf("spec.%s", [path])} if {
	data.library.secrets
	some [path, name] in corral.unlisted(input.pod.spec, allowed.secrets)
	not name == concat("", [input.pod.metadata.name, "-jit"])
}
