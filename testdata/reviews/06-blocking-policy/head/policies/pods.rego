# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# May this pod run?
package corral.template

# METADATA
# title: Images name a version
warn contains {
	"code": "latest",
	"msg": sprintf("%s may be another image tomorrow", [container.image]),
	"path": sprintf("spec.containers[%d].image", [i]),
	"remediation": "name a version, or better a digest",
} if {
	some i, container in input.pod.spec.containers
	endswith(container.image, ":latest")
}

# METADATA
# title: Runners leave room for others
deny contains {
	"code": "large",
	"msg": sprintf("container %s may take %s of memory, more than the 8Gi that a runner may have", [container.name, limit]),
	"path": sprintf("spec.containers[%d].resources.limits.memory", [i]),
	"remediation": "ask for 8Gi or less, or have the platform team except the pool",
	"severity": "high",
} if {
	some i, container in input.pod.spec.containers
	limit := container.resources.limits.memory
	units.parse_bytes(limit) > units.parse_bytes("8Gi")
}
