# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.scaling_test

import data.corral.scaling

teams := {"web": {"max": 60}}

question(labels, now) := {
	"pool": {"labels": labels},
	"now": time.parse_rfc3339_ns(now),
	"zone": "Europe/Berlin",
}

tuesday := "2026-07-07T10:00:00Z"

test_a_team_has_what_it_is_granted if {
	limits := scaling.limit with input as question({"team": "web"}, tuesday) with data.teams as teams
	limits == {{"field": "max", "atMost": 60, "reason": "team web is granted 60 runners a pool"}}
}

test_nobody_is_granted_nothing if {
	some labels in [{}, {"team": "unheard-of"}]
	limits := scaling.limit with input as question(labels, tuesday) with data.teams as teams
	{limit.atMost | some limit in limits} == {0}
}

# Saturday begins two hours earlier in Berlin than in UTC.
test_weekends_begin_at_midnight_of_the_zone if {
	every now, bounds in {"2026-07-10T21:59:59Z": 0, "2026-07-10T22:00:00Z": 1} {
		limits := scaling.limit with input as question({"team": "web"}, now) with data.teams as teams
		count([limit | some limit in limits; limit.field == "idle"]) == bounds
	}
}
