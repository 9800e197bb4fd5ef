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

# closed_until is when the next of the windows data.library.hours.open begins, if there are any and none is now.
closed_until := next(data.library.hours.open) if ends(data.library.hours.open) == set()

# open_until is when the last of those ends that are now. Another may have begun by then.
open_until := instant(max(ends(data.library.hours.open)), 0)

# limits that hold while closed.
limits := object.get(data.library.hours, "closed", {"max": 0})

# held_until is when the next of the windows data.library.hours.updates begins, if there are any and none is now.
held_until := next(data.library.hours.updates) if ends(data.library.hours.updates) == set()

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

# ends(windows) are the ends of the windows that are now, as the day (0 is today) and the time. Times HH:MM can be
# compared as they are. The second and third are of windows that go on past midnight: before it, and after.
ends(windows) := {[0, window.to] |
	some window in windows
	window.from <= wall.time
	wall.time < window.to
	wall.day in object.get(window, "days", weekdays)
} | ({[1, window.to] |
	some window in windows
	window.to <= window.from
	window.from <= wall.time
	wall.day in object.get(window, "days", weekdays)
} | {[0, window.to] |
	some window in windows
	window.to <= window.from
	wall.time < window.to
	before[wall.day] in object.get(window, "days", weekdays)
})

weekdays := ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"]

before := {
	"Sunday": "Saturday", "Monday": "Sunday", "Tuesday": "Monday", "Wednesday": "Tuesday", "Thursday": "Wednesday",
	"Friday": "Thursday", "Saturday": "Friday",
}

# days_until[today][day] is how many days a day is away.
days_until := {
	"Sunday": {"Sunday": 0, "Monday": 1, "Tuesday": 2, "Wednesday": 3, "Thursday": 4, "Friday": 5, "Saturday": 6},
	"Monday": {"Sunday": 6, "Monday": 0, "Tuesday": 1, "Wednesday": 2, "Thursday": 3, "Friday": 4, "Saturday": 5},
	"Tuesday": {"Sunday": 5, "Monday": 6, "Tuesday": 0, "Wednesday": 1, "Thursday": 2, "Friday": 3, "Saturday": 4},
	"Wednesday": {"Sunday": 4, "Monday": 5, "Tuesday": 6, "Wednesday": 0, "Thursday": 1, "Friday": 2, "Saturday": 3},
	"Thursday": {"Sunday": 3, "Monday": 4, "Tuesday": 5, "Wednesday": 6, "Thursday": 0, "Friday": 1, "Saturday": 2},
	"Friday": {"Sunday": 2, "Monday": 3, "Tuesday": 4, "Wednesday": 5, "Thursday": 6, "Friday": 0, "Saturday": 1},
	"Saturday": {"Sunday": 1, "Monday": 2, "Tuesday": 3, "Wednesday": 4, "Thursday": 5, "Friday": 6, "Saturday": 0},
}

# next(windows) is when one of the windows begins next: one of those today that didn't yet, or of the days after, or
# today a week from now.
next(windows) := instant(min(later), 0) if {
	shown := [0, wall.time]
	later := {begin |
		some begin in begins(windows)
		begin > shown
	}
	later != set()
} else := instant(min(begins(windows)), 7)

# begins(windows) are the days from now, and times of day, at which windows begin.
begins(windows) := {[away[day], window.from] |
	away := days_until[wall.day]
	some window in windows
	some day in object.get(window, "days", weekdays)
}

# wall is what the clock on the wall shows.
wall := {"day": shows[0], "time": shows[1]} if shows := split(time.format([moment, zone, "Monday 15:04"]), " ")

# moment is now, or while the clock stands still, a time at which it will show what it stands at.
moment := input.now if {
	east(input.now) == east(input.now - (180 * minute))
} else := input.now + (still * minute) if {
	shift := (ahead(input.now - (180 * minute)) - ahead(input.now)) / minute
	east(input.now - (shift * minute)) == east(input.now - (180 * minute))
	since := max({ago | some ago in numbers.range(0, shift - 1); east(input.now - (ago * minute)) == east(input.now)})
	still := (shift - 1) - since
} else := input.now

# instant(edge, more) is when the clock will show an edge, or first show a later time.
instant(edge, more) := first if {
	first := straight(edge, more)
	east(first) == east(moment)
} else := second if {
	first := straight(edge, more)
	second := first + (ahead(moment) - ahead(first))
	east(second) == east(first)
} else := min({jump |
	first := straight(edge, more)
	some ago in numbers.range(0, ((ahead(first) - ahead(moment)) / minute) - 1)
	jump := first - (ago * minute)
	east(jump) == east(first)
})

# straight(edge, more) is when the clock will show an edge if it isn't put forward or back before.
straight([days, time], more) := (midnight + ((days + more) * day)) + of_day(time)

# midnight is when today began, if the clock hasn't been put forward or back since.
midnight := moment - time.parse_duration_ns(time.format([moment, zone, "15h04m05.000000000s"]))

# of_day("15:04") is how long after midnight it is, in ns.
of_day(text) := time.parse_duration_ns(sprintf("%sm", [replace(text, ":", "h")]))

# east(ns) is how far the clock is ahead of UTC then, as ±HH:MM.
east(ns) := time.format([ns, zone, "-07:00"])

# ahead(ns) is the same in ns.
ahead(ns) := of_day(east(ns))

minute := 60000000000

day := 86400000000000

# bounds(limits) are the limits as a decision has them.
bounds(limits) := {{"field": field, "atMost": limits[field]} | some field in ["max", "min", "idle"]} if {
	not limits.hard
} else := {{"field": "max", "atMost": limits.max, "hard": true}} |
	{{"field": field, "atMost": limits[field]} | some field in ["min", "idle"]}

# changes are when limits will begin that don't hold yet.
changes contains open_until

changes contains next_freeze
