# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.template

import data.corral.library.resources

# METADATA
# scope: rule
# title: Requests of every container
# description: >-
#  Each container and init container must request the resources of data.library.resources.requireRequests, or
#  have a limit for them, or the pod as a whole must.
# custom:
#  code: CORRAL-RES-001
#  family: resources
deny contains {
	"msg": sprintf("container %s requests no %s", [container.name, name]),
	"path": sprintf("%s.resources.requests", [path]),
	"code": "CORRAL-RES-001",
	"severity": "medium",
	"remediation": sprintf("set resources.requests.%s to what a job usually takes", [name]),
} if {
	some name in resources.unrequested
	some [path, container, its] in resources.containers
	not its.requests[name]
	not its.limits[name]
}

# METADATA
# scope: rule
# title: Limits of every container
# description: >-
#  Each container and init container must have a limit for the resources of data.library.resources.requireLimits,
#  or the pod as a whole must.
# custom:
#  code: CORRAL-RES-002
#  family: resources
deny contains {
	"msg": sprintf("container %s has no limit for %s", [container.name, name]),
	"path": sprintf("%s.resources.limits", [path]),
	"code": "CORRAL-RES-002",
	"severity": "medium",
	"remediation": sprintf("set resources.limits.%s to the most that a job may take", [name]),
} if {
	some name in resources.unlimited
	some [path, container, its] in resources.containers
	not its.limits[name]
}

# METADATA
# scope: rule
# title: No more than may be taken
# description: >-
#  The total of a pod must not exceed data.library.resources.maxPerPod. For each container, its limit counts, or its
#  request if it has no limit. Containers and sidecars are added up. An init container counts if it alone exceeds this
#  sum.
# custom:
#  code: CORRAL-RES-003
#  family: resources
deny contains {
	"msg": sprintf("the pod takes %v of %s in total, more than %v", [resources.shown(total), name, most]),
	"path": "spec.containers",
	"code": "CORRAL-RES-003",
	"severity": "medium",
	"remediation": sprintf("lower the limits or requests for %s to %v in total", [name, most]),
} if {
	some name, total in resources.exceeding
	most := data.library.resources.maxPerPod[name]
}
