# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# scope: package
# title: Hours
# description: >-
#  Windows of the week on the clock of a zone. When the clock is put back, it is taken to stand still until it shows
#  a later time than before, so no window begins or ends twice. When it is put forward, what was to begin or end in
#  between does so at that moment.
package corral.library.hours

zone := object.get(data.library.hours, "zone", "UTC")

# opening says whether one of the windows data.library.hours.open is now, and until when.
opening := corral.windows(input.now, zone, data.library.hours.open)

# closed_until is when the next of them begins, if there are any and none is now.
closed_until := opening.until if not opening.open

# open_until is when the last of those ends that are now. Another may have begun by then.
open_until := opening.until if opening.open

# limits that hold while closed.
limits := object.get(data.library.hours, "closed", {"max": 0})

# held_until is when the next of the windows data.library.hours.updates begins, if there are any and none is now.
held_until := state.until if {
	state := corral.windows(input.now, zone, data.library.hours.updates)
	not state.open
}

# freezes under way, as [freeze, end].
freezes contains [freeze, to] if {
	some freeze in data.library.hours.freezes
	time.parse_rfc3339_ns(freeze.from) <= input.now
	to := time.parse_rfc3339_ns(freeze.to)
	input.now < to
}

# next_freeze is when the next begins that limits pools.
next_freeze := min({from |
	some freeze in data.library.hours.freezes
	freeze.limits
	from := time.parse_rfc3339_ns(freeze.from)
	from > input.now
})

# shown(ns) is a time as people in the zone write it.
shown(ns) := time.format([ns, zone, "Mon 2 Jan 2006 15:04 MST"])

# bounds(limits) are the limits as a decision has them.
bounds(limits) := {{"field": field, "atMost": limits[field]} | some field in ["max", "min", "idle"]} if {
	not limits.hard
} else := {{"field": "max", "atMost": limits.max, "hard": true}} |
	{{"field": field, "atMost": limits[field]} | some field in ["min", "idle"]}

# changes are when limits will begin that don't hold yet.
changes contains open_until

changes contains next_freeze
