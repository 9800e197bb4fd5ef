# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0
package corral.scaling_test

import data.corral.scaling

noon := {"now": time.parse_rfc3339_ns("2026-07-07T12:00:00Z"), "zone": "UTC", "pool": {"labels": {"team": "web"}}}

test_capped if {
	print("noon is", noon.now)
	{limit.atMost | some limit in scaling.limit} == {60} with input as noon
}

test_wrong if {
	print("asked")
	count(scaling.limit) == 3 with input as noon
}

todo_test_later if false
