# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# May this pod run?
package corral.template

# METADATA
# title: Images name a version
deny contains {
	"code": "latest",
	"msg": sprintf("%s may be another image tomorrow", [container.image]),
	"path": sprintf("spec.containers[%d].image", [i]),
	"remediation": "name a version, or better a digest",
} if {
	some i, container in input.pod.spec.containers
	endswith(container.image, ":latest")
}
