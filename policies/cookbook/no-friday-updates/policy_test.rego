# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.cookbook.no_friday_updates_test

import data.corral.update

held(at) if {
	found := update.rollout with data.parameters as {"zone": "Europe/Berlin"} with input as {"now": time.parse_rfc3339_ns(at)}
	some element in found
	element.hold
}

# 8 May 2026 is a Friday; Berlin is two hours ahead of UTC.
test_held if {
	every at in ["2026-05-08T10:00:00Z", "2026-05-09T00:00:00Z", "2026-05-10T20:00:00Z", "2026-05-11T04:59:00Z"] {
		held(at)
	}
}

test_not_held if {
	every at in ["2026-05-08T09:59:00Z", "2026-05-11T05:00:00Z", "2026-05-13T12:00:00Z"] {
		not held(at)
	}
}
