# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.scaling_pause_test

import data.corral.scaling

now := time.parse_rfc3339_ns("2026-05-04T10:00:00Z")

limit(pause) := found if found := scaling.limit with input as {"now": now} with data.library as {"pause": pause}

test_paused if {
	limit({"reason": "incident 42"}) == {
		{"field": "max", "atMost": 0, "reason": "paused: incident 42"},
		{"field": "min", "atMost": 0, "reason": "paused: incident 42"},
		{"field": "idle", "atMost": 0, "reason": "paused: incident 42"},
	}
}

test_for_a_time if {
	found := limit({"reason": "x", "until": "2026-05-04T11:00:00Z"})
	{element.until | some element in found} == {time.parse_rfc3339_ns("2026-05-04T11:00:00Z")}
	limit({"reason": "x", "until": "2026-05-04T10:00:00Z"}) == set()
}

test_updates_only if limit({"reason": "x", "scope": "Updates"}) == set()

test_off if count(scaling.limit) == 0 with input as {"now": now} with data.library as {}
