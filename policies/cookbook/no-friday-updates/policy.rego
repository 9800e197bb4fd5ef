# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# scope: package
# title: No updates before the weekend
# description: |
#  From Friday noon to Monday morning, no engineer would notice a failing update. This policy holds updates during that
#  time, and they continue afterwards. `library.hours.updates` does this without Rego.
# custom:
#  kind: RunnerPolicy
#  parameters:
#   zone: Europe/Berlin
package corral.update

rollout contains {"hold": true, "reason": "no updates from Friday noon to Monday 07:00"} if weekend

weekend if {
	weekday == "Friday"
	hour >= 12
}

weekend if weekday in {"Saturday", "Sunday"}

weekend if {
	weekday == "Monday"
	hour < 7
}

weekday := time.weekday([input.now, data.parameters.zone])

hour := time.clock([input.now, data.parameters.zone])[0]
