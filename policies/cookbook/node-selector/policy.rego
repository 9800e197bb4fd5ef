# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# scope: package
# title: Runners stay on dedicated nodes
# description: |
#  Every runner's pod must select the nodes for CI, so that jobs never run next to services. A pod that does not tolerate
#  the taint of these nodes gets a warning. Pods that name a node are denied, because they bypass the scheduler.
# custom:
#  kind: ClusterRunnerPolicy
#  parameters:
#   label: node.acme.example/purpose
#   value: ci
package corral.template

# METADATA
# title: Pods select the nodes for CI
# custom:
#  code: ACME-NODE-1
deny contains {
	"msg": sprintf("the pod does not select the nodes with %s=%s", [data.parameters.label, data.parameters.value]),
	"path": "spec.nodeSelector",
	"code": "ACME-NODE-1",
	"remediation": sprintf("set nodeSelector %s: %s", [data.parameters.label, data.parameters.value]),
} if {
	not input.pod.spec.nodeSelector[data.parameters.label] == data.parameters.value
}

# METADATA
# title: The scheduler chooses the node
# custom:
#  code: ACME-NODE-2
deny contains {
	"msg": sprintf("the pod names the node %s", [input.pod.spec.nodeName]),
	"path": "spec.nodeName",
	"code": "ACME-NODE-2",
	"remediation": "remove nodeName",
} if {
	input.pod.spec.nodeName != ""
}

# METADATA
# title: Pods tolerate the taint of the nodes for CI
# custom:
#  code: ACME-NODE-3
warn contains {
	"msg": sprintf("the pod does not tolerate the taint %s", [data.parameters.label]),
	"path": "spec.tolerations",
	"code": "ACME-NODE-3",
	"remediation": sprintf("add the toleration {key: %s, operator: Exists}", [data.parameters.label]),
} if {
	not tolerated
}

tolerated if {
	some toleration in input.pod.spec.tolerations
	toleration.key == data.parameters.label
}
