# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# scope: package
# title: Hours
# description: >-
#  Windows of the week on the clock of a time zone. When the clock is put back, it is taken to stand still until it shows
#  a later time than before, so no window begins or ends twice. When it is put forward, what was to begin or end in
#  between does so at that moment.
package corral.library.hours

default time_zone := "UTC"

time_zone := data.library.hours.timeZone

# opening says whether one of the windows data.library.hours.open is now, and until when.
opening := corral.windows(input.now, time_zone, data.library.hours.open)

default closed := {"max": 0}

# closed are the limits that hold while none of them is.
closed := data.library.hours.closed

# held_until is when the next of the windows data.library.hours.updates begins, if there are any and none is now.
held_until := state.until if {
	state := corral.windows(input.now, time_zone, data.library.hours.updates)
	not state.open
}

# freezes under way, as [freeze, end].
freezes contains [freeze, to] if {
	some freeze in data.library.hours.freezes
	time.parse_rfc3339_ns(freeze.from) <= input.now
	to := time.parse_rfc3339_ns(freeze.to)
	input.now < to
}

# changes are when limits will begin that don't hold yet: when the last of the windows ends that are now, though
# another may have begun by then, and when a freeze begins that has limits.
changes contains opening.until if opening.open

changes contains from if {
	some freeze in data.library.hours.freezes
	freeze.limits
	from := time.parse_rfc3339_ns(freeze.from)
	from > input.now
}

# shown(ns) is a time as people in the time zone write it.
shown(ns) := time.format([ns, time_zone, "Mon 2 Jan 2006 15:04 MST"])

# bounds(limits) are the limits as a decision has them.
bounds(limits) := {{"field": field, "atMost": limits[field]} | some field in ["max", "min", "idle"]} if {
	not limits.assignedJobs == "Wait"
} else := {{"field": "max", "atMost": limits.max, "assignedJobs": "Wait"}} |
	{{"field": field, "atMost": limits[field]} | some field in ["min", "idle"]}
