# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0
package corral.template

# METADATA
# title: No privileged containers
deny contains {
	"code": "privileged",
	"msg": sprintf("container %s is privileged", [container.name]),
	"path": sprintf("spec.containers[%d].securityContext.privileged", [i]),
	"remediation": "remove privileged",
} if {
	some i, container in input.pod.spec.containers
	container.securityContext.privileged
}

warn contains {"msg": sprintf("%s moves", [container.image]), "path": sprintf("spec.containers[%d].image", [i])} if {
	some i, container in input.pod.spec.containers
	endswith(container.image, ":latest")
}
