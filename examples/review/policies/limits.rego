# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# Which limits apply now?
package corral.scaling

# METADATA
# title: A pool has at most what its team is granted
limit contains {"field": "max", "atMost": granted, "reason": reason} if {
	team := input.pool.labels.team
	granted := data.teams[team].max
	reason := sprintf("team %s is granted %d runners a pool", [team, granted])
}
