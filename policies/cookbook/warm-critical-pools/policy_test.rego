# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.cookbook.warm_critical_pools_test

import data.corral.scaling

limits(at, tier) := found if {
	found := scaling.limit with data.parameters as {"idle": {"day": 3, "night": 1}, "zone": "Europe/Berlin"}
		with input as {"pool": {"labels": {"tier": tier}}, "now": time.parse_rfc3339_ns(at)}
}

test_day_and_night if {
	limits("2026-05-04T10:00:00Z", "critical") == {{"field": "idle", "atLeast": 3, "reason": "critical pools stay warm"}}
	limits("2026-05-04T22:00:00Z", "critical") == {{"field": "idle", "atLeast": 1, "reason": "critical pools stay warm"}}
}

test_other_pools if limits("2026-05-04T10:00:00Z", "standard") == set()
