# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.update_pause_test

import data.corral.update

now := time.parse_rfc3339_ns("2026-05-04T10:00:00Z")

rollout(pause) := found if found := update.rollout with input as {"now": now} with data.library as {"pause": pause}

test_paused if {
	rollout({"reason": "incident 42"}) == {{"hold": true, "reason": "paused: incident 42"}}
	rollout({"reason": "incident 42", "scope": "Updates"}) == {{"hold": true, "reason": "paused: incident 42"}}
}

test_for_a_time if {
	found := rollout({"reason": "x", "until": "2026-05-04T11:00:00Z"})
	{element.until | some element in found} == {time.parse_rfc3339_ns("2026-05-04T11:00:00Z")}
	rollout({"reason": "x", "until": "2026-05-04T10:00:00Z"}) == set()
}

test_off if count(update.rollout) == 0 with input as {"now": now} with data.library as {}
