# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# scope: package
# title: Hours
# description: >-
#  Weekly windows in the local time of a time zone. When the clock is set back, it counts as stopped until it shows a
#  later time than before, so that no window begins or ends twice. When it is set forward, windows that would begin or
#  end in the skipped time do so at that moment.
package corral.library.hours

default time_zone := "UTC"

time_zone := data.library.hours.timeZone

# opening has two fields: whether the current time is in one of the windows data.library.hours.open, and until when.
opening := corral.windows(input.now, time_zone, data.library.hours.open)

default closed := {"max": 0}

# closed are the limits outside of these windows.
closed := data.library.hours.closed

# held_until is when the next of the windows data.library.hours.updates begins. It is undefined inside a window, and if
# there are no windows.
held_until := state.until if {
	state := corral.windows(input.now, time_zone, data.library.hours.updates)
	not state.open
}

# freezes contains the current freezes, as [freeze, end].
freezes contains [freeze, to] if {
	some freeze in data.library.hours.freezes
	time.parse_rfc3339_ns(freeze.from) <= input.now
	to := time.parse_rfc3339_ns(freeze.to)
	input.now < to
}

# changes contains the times at which further limits will apply: the end of the last current window, even if another
# window may begin before, and the beginning of each freeze with limits.
changes contains opening.until if opening.open

changes contains from if {
	some freeze in data.library.hours.freezes
	freeze.limits
	from := time.parse_rfc3339_ns(freeze.from)
	from > input.now
}

# shown(ns) formats a time in the time zone.
shown(ns) := time.format([ns, time_zone, "Mon 2 Jan 2006 15:04 MST"])

# bounds(limits) are the limits in the form of a decision.
bounds(limits) := {{"field": field, "atMost": limits[field]} | some field in ["max", "min", "idle"]} if {
	not limits.assignedJobs == "Wait"
} else := {{"field": "max", "atMost": limits.max, "assignedJobs": "Wait"}} | {{"field": field, "atMost": limits[field]} | some field in ["min", "idle"]}
