# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# What limits hold now?
package corral.scaling

# A pool has at most what data.yaml grants its team.
limit contains {"field": "max", "atMost": granted, "reason": reason} if {
	team := input.pool.labels.team
	granted := data.teams[team].max
	reason := sprintf("team %s is granted %d runners a pool", [team, granted])
}

# Without a team it gets nothing: somebody has to answer for it.
limit contains {"field": "max", "atMost": 0, "reason": "the pool names no team of data.yaml"} if {
	not has_team
}

has_team if data.teams[input.pool.labels.team]

# Free runners are for people who wait.
limit contains {"field": "idle", "atMost": 0, "reason": "nobody waits for a free runner on weekends"} if {
	time.weekday([input.now, input.zone]) in {"Saturday", "Sunday"}
}
