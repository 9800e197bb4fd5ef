# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# May this pod run?
package corral.template

import data.corral.pod

deny contains {
	"code": "privileged",
	"msg": sprintf("container %s is privileged: its jobs are root on the node", [container.name]),
	"path": sprintf("%s.securityContext.privileged", [path]),
	"remediation": "remove privileged; images can be built without it, as in the example docker",
} if {
	some path, container in pod.containers
	container.securityContext.privileged
}

warn contains {
	"code": "latest",
	"msg": sprintf("%s may be another image tomorrow", [container.image]),
	"path": sprintf("%s.image", [path]),
	"remediation": "name a version, or better a digest",
} if {
	some path, container in pod.containers
	endswith(container.image, ":latest")
}
