# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.scaling

import data.corral.library.hours

# METADATA
# scope: rule
# title: Closed outside of business hours
# description: >-
#  Outside of the windows of data.library.hours.open, the values of data.library.hours.closed are upper limits; the default is
#  max 0. Jobs that GitHub has already assigned still run, unless closed has assignedJobs: Wait.
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
#  During a freeze of data.library.hours.freezes, its limits are upper limits.
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
#  Limits nothing. It requests the next decision for the time at which a window ends or a freeze begins.
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
