# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# Which limits apply now?
package corral.scaling

# A pool has at most the grant of its team in data.yaml.
limit contains {"field": "max", "atMost": granted, "reason": reason} if {
	team := input.pool.labels.team
	granted := data.teams[team].max
	reason := sprintf("team %s is granted %d runners a pool", [team, granted])
}

# A pool without a team gets no runners, because a team must be responsible for it.
limit contains {"field": "max", "atMost": 0, "reason": "the pool names no team of data.yaml"} if {
	not has_team
}

has_team if data.teams[input.pool.labels.team]

# Idle runners are useful only while people work.
limit contains {"field": "idle", "atMost": 0, "reason": "nobody waits for a free runner on weekends"} if {
	time.weekday([input.now, input.zone]) in {"Saturday", "Sunday"}
}
