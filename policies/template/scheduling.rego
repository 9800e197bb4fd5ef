# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.template

import data.corral.library.allowed

# METADATA
# scope: rule
# title: Scheduling within bounds
# description: >-
#  A pod may name only schedulers, priority classes and runtime classes in data.library.scheduling, and select nodes only by
#  its nodeLabels, architecture, operating system and topology. A topologyKey selects nodes that have the label. A pod must
#  not name its node, use a scheduling gate, join a group, name an eviction responder, or have affinity to pods of other
#  namespaces.
# custom:
#  code: CORRAL-SCHED-001
#  family: scheduling
#  severity: high
#  remediation: remove the field, or add the name to library.scheduling
#  only_with: [schedulerName, priorityClassName, runtimeClassName, nodeSelector, affinity, topologySpreadConstraints, nodeName, schedulingGates, schedulingGroup, evictionResponders]
deny contains {"msg": sprintf("the pod chooses how it is scheduled: %s", [name]), "path": sprintf("spec.%s", [path])} if {
	data.library.scheduling
	some [path, name] in unlisted_scheduling
}

unlisted_scheduling contains found if some found in corral.unlisted(input.pod.spec, allowed.scheduling)

# A requirement with another operator than In counts as any value, *.
unlisted_scheduling contains ["affinity.nodeAffinity", label] if {
	affinity := input.pod.spec.affinity.nodeAffinity
	required := object.get(affinity, ["requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"], [])
	preferred := [p.preference | some p in affinity.preferredDuringSchedulingIgnoredDuringExecution]
	requirement := array.concat(required, preferred)[_][["matchExpressions", "matchFields"][_]][_]
	some value in object.get({"In": object.get(requirement, "values", [])}, requirement.operator, ["*"])
	some [_, label] in corral.unlisted({requirement.key: value}, [[["*"], allowed.node_labels]])
}

# Only nodes with the label of a topologyKey take part in it, whatever its value.
unlisted_scheduling contains [path, label] if {
	some [path, key] in corral.unlisted(input.pod.spec, allowed.topology_keys)
	some [_, label] in corral.unlisted({key: "*"}, [[["*"], (allowed.node_labels | {"kubernetes.io/hostname"})]])
}

# METADATA
# scope: rule
# title: Tolerations by taint
# description: >-
#  A pod may tolerate only the taints in data.library.scheduling.tolerations.
# custom:
#  code: CORRAL-SCHED-002
#  family: scheduling
#  severity: high
#  remediation: remove the toleration, or add the taint to library.scheduling.tolerations
#  only_with: [tolerations]
deny contains {"msg": sprintf("the pod tolerates the taint %s", [taint]), "path": sprintf("spec.tolerations[%d]", [i])} if {
	data.library.scheduling
	some i, toleration in input.pod.spec.tolerations
	operator := object.get(toleration, "operator", "Equal")
	value := {"Equal": object.get(toleration, "value", "")}
	some [_, taint] in corral.unlisted({object.get(toleration, "key", ""): object.get(value, operator, "*")}, allowed.taints)
}
