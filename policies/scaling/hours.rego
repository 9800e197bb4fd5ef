# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.scaling

import data.corral.library.hours

# METADATA
# scope: rule
# title: Closed outside of business hours
# description: >-
#  Outside of the windows of data.library.hours.open, the numbers of data.library.hours.closed are upper bounds: max 0 if
#  there are none. Jobs that GitHub had assigned before are still served, unless closed has assignedJobs: Wait.
# custom:
#  code: CORRAL-HRS-001
#  family: hours
limit contains object.union(bound, {
	"reason": sprintf("closed until %s", [hours.shown(until)]),
	"until": until,
}) if {
	not hours.opening.open
	until := hours.opening.until
	some bound in hours.bounds(hours.closed)
}

# METADATA
# scope: rule
# title: Limits of a freeze
# description: >-
#  While a freeze of data.library.hours.freezes is under way, its limits are upper bounds.
# custom:
#  code: CORRAL-HRS-002
#  family: hours
limit contains object.union(bound, {
	"reason": sprintf("freeze %s until %s", [freeze.name, hours.shown(to)]),
	"until": to,
}) if {
	some [freeze, to] in hours.freezes
	some bound in hours.bounds(freeze.limits)
}

# METADATA
# scope: rule
# title: The next change of hours
# description: >-
#  Bounds nothing. It has the limits decided again at the moment when a window ends or a freeze begins.
# custom:
#  code: CORRAL-HRS-003
#  family: hours
limit contains {
	"field": "max",
	"atMost": 2147483647, # the highest possible max: a lower value would override floors of other policies
	"reason": "no limit until then",
	"until": until,
} if {
	until := min(hours.changes)
}
