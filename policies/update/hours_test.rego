# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.update_hours_test

import data.corral.update

ns(text) := time.parse_rfc3339_ns(text)

rollout(at, rules) := found if {
	found := update.rollout with input as {"now": ns(at)} with data.library as {"hours": rules}
}

test_freezes if {
	rules := {"timeZone": "Europe/Berlin", "freezes": [{"name": "release", "from": "2026-05-04T10:00:00Z", "to": "2026-05-04T12:00:00Z"}]}
	rollout("2026-05-04T09:59:59Z", rules) == set()
	rollout("2026-05-04T10:00:00Z", rules) == {{
		"hold": true,
		"reason": "freeze release until Mon 4 May 2026 14:00 CEST",
		"until": ns("2026-05-04T12:00:00Z"),
	}}
	rollout("2026-05-04T12:00:00Z", rules) == set()
}

test_windows if {
	rules := {"updates": [{"days": ["Monday", "Tuesday"], "from": "09:00", "to": "16:00"}]}
	rollout("2026-05-04T09:00:00Z", rules) == set()
	rollout("2026-05-04T15:59:00Z", rules) == set()
	rollout("2026-05-04T16:00:00Z", rules) == {{
		"hold": true,
		"reason": "no updates until Tue 5 May 2026 09:00 UTC",
		"until": ns("2026-05-05T09:00:00Z"),
	}}
}

test_open_hours_hold_no_updates if rollout("2026-05-04T05:00:00Z", {"open": [{"from": "09:00", "to": "16:00"}]}) == set()

test_off if count(update.rollout) == 0 with input as {"now": 0} with data.library as {}
