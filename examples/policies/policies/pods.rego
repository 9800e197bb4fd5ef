# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# May this pod run?
package corral.template

deny contains {
	"code": "privileged",
	"msg": sprintf("container %s is privileged: its jobs are root on the node", [container.name]),
	"path": sprintf("spec.containers[%d].securityContext.privileged", [i]),
	"remediation": "remove privileged; images can be built without it, as in the example docker",
} if {
	some i, container in input.pod.spec.containers
	container.securityContext.privileged
}

warn contains {
	"code": "latest",
	"msg": sprintf("%s may be another image tomorrow", [container.image]),
	"path": sprintf("spec.containers[%d].image", [i]),
	"remediation": "name a version, or better a digest",
} if {
	some i, container in input.pod.spec.containers
	endswith(container.image, ":latest")
}
