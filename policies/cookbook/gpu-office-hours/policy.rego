# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# scope: package
# title: No GPUs outside of office hours
# description: |
#  Pools with the label `gpu` have no runners at night and on weekends. Jobs that GitHub has already assigned still
#  run. `library.hours` does this without Rego. This recipe shows how a rule reads the time. `until` is when Corral evaluates
#  the rule again.
# custom:
#  kind: ClusterRunnerPolicy
#  parameters:
#   zone: Europe/Berlin
package corral.scaling

limit contains {"field": "max", "atMost": 0, "reason": "no GPU runners outside of office hours", "until": until} if {
	input.pool.labels.gpu
	not office_hours
	until := (input.now - (input.now % hour)) + hour
}

office_hours if {
	[clock, _, _] := time.clock([input.now, data.parameters.zone])
	clock >= 8
	clock < 18
	not time.weekday([input.now, data.parameters.zone]) in {"Saturday", "Sunday"}
}

hour := (60 * 60) * 1000000000
