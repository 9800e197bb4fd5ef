# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.update

import data.corral.library.hours

# METADATA
# scope: rule
# title: No updates in a freeze
# description: >-
#  During a freeze of data.library.hours.freezes, updates are held.
# custom:
#  code: CORRAL-HRS-011
#  family: hours
rollout contains {
	"hold": true,
	"reason": sprintf("freeze %s until %s", [freeze.name, hours.shown(to)]),
	"until": to,
} if {
	some [freeze, to] in hours.freezes
}

# METADATA
# scope: rule
# title: Updates in their windows only
# description: >-
#  Outside of the windows of data.library.hours.updates, updates are held.
# custom:
#  code: CORRAL-HRS-012
#  family: hours
rollout contains {
	"hold": true,
	"reason": sprintf("no updates until %s", [hours.shown(hours.held_until)]),
	"until": hours.held_until,
}
