# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.cookbook.gpu_office_hours_test

import data.corral.scaling

limits(at, labels) := found if {
	found := scaling.limit with data.parameters as {"zone": "Europe/Berlin"}
		with input as {"pool": {"labels": labels}, "now": time.parse_rfc3339_ns(at)}
}

# Monday; Berlin is two hours ahead of UTC.
test_by_day if {
	limits("2026-05-04T06:00:00Z", {"gpu": "a100"}) == set()
	limits("2026-05-04T15:59:59Z", {"gpu": "a100"}) == set()
}

test_by_night if {
	every at in ["2026-05-04T05:59:59Z", "2026-05-04T16:00:00Z", "2026-05-09T10:00:00Z"] {
		{element.atMost | some element in limits(at, {"gpu": "a100"})} == {0}
	}
}

test_asked_again_at_the_hour if {
	{element.until | some element in limits("2026-05-04T05:10:00Z", {"gpu": "a100"})} == {time.parse_rfc3339_ns("2026-05-04T06:00:00Z")}
}

test_other_pools if limits("2026-05-09T10:00:00Z", {}) == set()
