# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.update_test

import data.corral.update

question(labels, now) := {"pool": {"labels": labels}, "now": time.parse_rfc3339_ns(now), "zone": "UTC"}

test_held_from_friday_noon_to_monday if {
	every now, held in {
		"2026-07-10T11:59:59Z": 0,
		"2026-07-10T12:00:00Z": 1,
		"2026-07-12T23:59:59Z": 1,
		"2026-07-13T00:00:00Z": 0,
	} {
		count(update.rollout) == held with input as question({}, now)
	}
}

test_releases_try_one_runner if {
	some rollout in update.rollout with input as question({"tier": "release"}, "2026-07-07T10:00:00Z")
	rollout.canary == 1
}
