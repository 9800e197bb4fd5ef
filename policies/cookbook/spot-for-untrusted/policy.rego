# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# scope: package
# title: Untrusted code, and nothing else, on spot nodes
# description: |
#  Pools that run public pull requests (`trust: public`) must use spot nodes. All other pools must not use spot nodes, so that
#  no untrusted code runs next to them and their jobs are not interrupted. Set `label` to the label of your nodes.
# custom:
#  kind: ClusterRunnerPolicy
#  parameters:
#   label: karpenter.sh/capacity-type
package corral.template

# METADATA
# title: Untrusted code runs on spot nodes
# custom:
#  code: ACME-SPOT-1
deny contains {
	"msg": "a public pool must run on spot nodes",
	"path": "spec.nodeSelector",
	"code": "ACME-SPOT-1",
	"remediation": sprintf("set nodeSelector %s: spot", [data.parameters.label]),
} if {
	input.pool.trust == "public"
	not on_spot
}

# METADATA
# title: Trusted code does not run on spot nodes
# custom:
#  code: ACME-SPOT-2
deny contains {
	"msg": "only a public pool may run on spot nodes",
	"path": "spec.nodeSelector",
	"code": "ACME-SPOT-2",
	"remediation": sprintf("set nodeSelector %s: on-demand", [data.parameters.label]),
} if {
	input.pool.trust != "public"
	on_spot
}

on_spot if input.pod.spec.nodeSelector[data.parameters.label] == "spot"
