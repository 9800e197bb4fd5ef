# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0
package corral.template

# METADATA
# title: No privileged containers
deny contains {
	"code": "privileged",
	"msg": sprintf("container %s is privileged", [container.name]),
	"path": sprintf("%s.securityContext.privileged", [path]),
	"remediation": "remove privileged",
} if {
	some path, container in data.corral.pod.containers
	container.securityContext.privileged
}

warn contains {"msg": sprintf("%s moves", [container.image]), "path": sprintf("%s.image", [path])} if {
	some path, container in data.corral.pod.containers
	endswith(container.image, ":latest")
}
