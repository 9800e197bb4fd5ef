# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# scope: package
# title: Runners stay on the nodes made for them
# description: |
#  Every runner's pod must select the nodes for CI and tolerate their taint, so that jobs never run next to services.
#  Pods that name a node bypass the scheduler and are denied.
# custom:
#  kind: ClusterRunnerPolicy
#  parameters:
#   label: node.acme.example/purpose
#   value: ci
package corral.template

# METADATA
# title: The nodes for CI are selected
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
# title: The taint of the nodes for CI is tolerated
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
