# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# scope: package
# title: Critical pools stay warm
# description: |
#  Pools with the label `tier: critical` keep idle runners, even if they declare none: more by day than by night. Only a
#  ClusterRunnerPolicy can raise a number above the pool's declaration. Ceilings still apply.
# custom:
#  kind: ClusterRunnerPolicy
#  parameters:
#   idle: {day: 3, night: 1}
#   zone: Europe/Berlin
package corral.scaling

limit contains {"field": "idle", "atLeast": idle, "reason": "critical pools stay warm"} if {
	input.pool.labels.tier == "critical"
	idle := data.parameters.idle[part_of_day]
}

part_of_day := "day" if {
	[hour, _, _] := time.clock([input.now, data.parameters.zone])
	hour >= 7
	hour < 20
} else := "night"
