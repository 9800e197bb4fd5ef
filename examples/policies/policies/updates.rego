# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# How may this change roll out?
package corral.update

# No team should have to fix runners on a Friday evening.
rollout contains {"hold": true, "reason": "no updates from Friday noon to Monday"} if {
	late
}

late if time.weekday([input.now, input.zone]) in {"Saturday", "Sunday"}

late if {
	time.weekday([input.now, input.zone]) == "Friday"
	time.clock([input.now, input.zone])[0] >= 12
}

# If a broken runner is expensive, one runner tries the template first.
rollout contains {"canary": 1, "reason": "releases try a new template with one runner"} if {
	input.pool.labels.tier == "release"
}
