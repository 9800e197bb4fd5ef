# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.scaling_hours_test

import data.corral.library.hours
import data.corral.scaling

ns(text) := time.parse_rfc3339_ns(text)

limit(at, rules) := found if {
	found := scaling.limit with input as {"now": ns(at), "pool": {"scale": {"max": 20}}} with data.library as {"hours": rules}
}

# state(at, rules) is ["closed", until] or ["open", until], with the local time, or ["open"] if it never closes.
state(at, rules) := ["closed", time.format([until, rules.timeZone, "Mon 15:04 MST"])] if {
	[false, until] = opening(at, rules)
} else := ["open", time.format([until, rules.timeZone, "Mon 15:04 MST"])] if {
	[true, until] = opening(at, rules)
} else := ["open"]

# opening(at, rules) is [whether a window is open, until when].
opening(at, rules) := [state.open, state.until] if {
	state := hours.opening with input as {"now": ns(at)} with data.library as {"hours": rules}
}

weekdays := ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"]

office := {"timeZone": "Europe/Berlin", "open": [{"days": weekdays, "from": "08:00", "to": "18:30"}]}

# 4 May 2026 is a Monday; Berlin is at +02:00.
test_office_hours if {
	every at, want in {
		"2026-05-04T05:59:59Z": ["closed", "Mon 08:00 CEST"],
		"2026-05-04T06:00:00Z": ["open", "Mon 18:30 CEST"],
		"2026-05-04T16:29:59.999Z": ["open", "Mon 18:30 CEST"],
		"2026-05-04T16:30:00Z": ["closed", "Tue 08:00 CEST"],
		"2026-05-08T16:30:00Z": ["closed", "Mon 08:00 CEST"],
		"2026-05-09T10:00:00Z": ["closed", "Mon 08:00 CEST"],
		"2026-05-10T21:59:00Z": ["closed", "Mon 08:00 CEST"],
		"2026-05-10T22:00:00Z": ["closed", "Mon 08:00 CEST"],
	} {
		print(at)
		state(at, office) == want
	}
}

test_once_a_week if {
	rules := {"timeZone": "UTC", "open": [{"days": ["Monday"], "from": "08:00", "to": "09:00"}]}
	state("2026-05-04T09:00:00Z", rules) == ["closed", "Mon 08:00 UTC"]
	opening("2026-05-04T09:00:00Z", rules) == [false, ns("2026-05-11T08:00:00Z")]
}

test_past_midnight if {
	rules := {"timeZone": "UTC", "open": [{"days": ["Friday"], "from": "22:00", "to": "06:00"}]}
	every at, want in {
		"2026-05-08T21:59:00Z": ["closed", "Fri 22:00 UTC"],
		"2026-05-08T22:00:00Z": ["open", "Sat 06:00 UTC"],
		"2026-05-09T00:00:00Z": ["open", "Sat 06:00 UTC"],
		"2026-05-09T05:59:00Z": ["open", "Sat 06:00 UTC"],
		"2026-05-09T06:00:00Z": ["closed", "Fri 22:00 UTC"],
		"2026-05-08T05:00:00Z": ["closed", "Fri 22:00 UTC"],
	} {
		print(at)
		state(at, rules) == want
	}
}

test_whole_days if {
	saturday := {"timeZone": "UTC", "open": [{"days": ["Saturday"], "from": "00:00", "to": "24:00"}]}
	state("2026-05-08T23:59:00Z", saturday) == ["closed", "Sat 00:00 UTC"]
	state("2026-05-09T00:00:00Z", saturday) == ["open", "Sun 00:00 UTC"]
	state("2026-05-09T23:59:59Z", saturday) == ["open", "Sun 00:00 UTC"]
	state("2026-05-10T00:00:00Z", saturday) == ["closed", "Sat 00:00 UTC"]
	same := {"timeZone": "UTC", "open": [{"days": ["Saturday"], "from": "09:00", "to": "09:00"}]}
	state("2026-05-09T09:00:00Z", same) == ["open", "Sun 09:00 UTC"]
	state("2026-05-10T08:59:00Z", same) == ["open", "Sun 09:00 UTC"]
	state("2026-05-10T09:00:00Z", same) == ["closed", "Sat 09:00 UTC"]
}

test_several_windows if {
	rules := {"timeZone": "UTC", "open": [
		{"from": "06:00", "to": "12:00"},
		{"days": ["Monday"], "from": "11:00", "to": "13:00"},
		{"days": ["Monday", "Sunday"], "from": "22:00", "to": "02:00"},
	]}
	every at, want in {
		"2026-05-04T01:00:00Z": ["open", "Mon 02:00 UTC"],
		"2026-05-04T02:00:00Z": ["closed", "Mon 06:00 UTC"],
		"2026-05-04T11:30:00Z": ["open", "Mon 13:00 UTC"],
		"2026-05-04T13:00:00Z": ["closed", "Mon 22:00 UTC"],
		"2026-05-05T13:00:00Z": ["closed", "Wed 06:00 UTC"],
	} {
		print(at)
		state(at, rules) == want
	}
}

# On 29 March 2026 at 01:00Z, Berlin goes from 02:00 to 03:00.
test_clock_put_forward if {
	inside := {"timeZone": "Europe/Berlin", "open": [{"days": ["Sunday"], "from": "02:30", "to": "05:00"}]}
	state("2026-03-28T12:00:00Z", inside) == ["closed", "Sun 03:00 CEST"]
	state("2026-03-29T00:30:00Z", inside) == ["closed", "Sun 03:00 CEST"]
	state("2026-03-29T00:59:59Z", inside) == ["closed", "Sun 03:00 CEST"]
	state("2026-03-29T01:00:00Z", inside) == ["open", "Sun 05:00 CEST"]
	ending := {"timeZone": "Europe/Berlin", "open": [{"days": ["Sunday"], "from": "01:00", "to": "02:15"}]}
	state("2026-03-29T00:00:00Z", ending) == ["open", "Sun 03:00 CEST"]
	state("2026-03-29T01:00:00Z", ending) == ["closed", "Sun 01:00 CEST"]
	state("2026-03-28T18:30:00Z", office) == ["closed", "Mon 08:00 CEST"]
	state("2026-03-29T05:59:00Z", office) == ["closed", "Mon 08:00 CEST"]
	state("2026-03-27T18:30:00Z", office) == ["closed", "Mon 08:00 CEST"]
	swallowed := {"timeZone": "Europe/Berlin", "open": [{"days": ["Sunday"], "from": "02:10", "to": "02:50"}]}
	state("2026-03-29T01:00:00Z", swallowed) == ["closed", "Sun 02:10 CEST"]
}

# On 25 October 2026 at 01:00Z, Berlin goes from 03:00 back to 02:00.
test_clock_put_back if {
	inside := {"timeZone": "Europe/Berlin", "open": [{"days": ["Sunday"], "from": "02:30", "to": "02:45"}]}
	every at, want in {
		"2026-10-24T12:00:00Z": ["closed", "Sun 02:30 CEST"],
		"2026-10-25T00:30:00Z": ["open", "Sun 02:45 CEST"],
		"2026-10-25T00:45:00Z": ["closed", "Sun 02:30 CET"],
		"2026-10-25T01:00:00Z": ["closed", "Sun 02:30 CET"],
		"2026-10-25T01:30:00Z": ["closed", "Sun 02:30 CET"],
	} {
		print(at)
		state(at, inside) == want
	}
	opening("2026-10-25T01:30:00Z", inside) == [false, ns("2026-11-01T01:30:00Z")]
	across := {"timeZone": "Europe/Berlin", "open": [{"days": ["Sunday"], "from": "02:30", "to": "03:00"}]}
	state("2026-10-25T00:30:00Z", across) == ["open", "Sun 03:00 CET"]
	state("2026-10-25T01:00:00Z", across) == ["open", "Sun 03:00 CET"]
	state("2026-10-25T01:15:00Z", across) == ["open", "Sun 03:00 CET"]
	state("2026-10-25T01:59:59Z", across) == ["open", "Sun 03:00 CET"]
	state("2026-10-25T02:00:00Z", across) == ["closed", "Sun 02:30 CET"]
	state("2026-10-23T18:00:00Z", office) == ["closed", "Mon 08:00 CET"]
	state("2026-10-25T01:30:00Z", office) == ["closed", "Mon 08:00 CET"]
}

# Lord Howe goes back by half an hour on 5 April 2026 at 15:00Z the day before, from 02:00 to 01:30.
test_clock_put_back_by_half_an_hour if {
	rules := {"timeZone": "Australia/Lord_Howe", "open": [{"days": ["Sunday"], "from": "01:45", "to": "02:00"}]}
	state("2026-04-04T14:45:00Z", rules) == ["open", "Sun 02:00 +1030"]
	state("2026-04-04T15:00:00Z", rules) == ["open", "Sun 02:00 +1030"]
	state("2026-04-04T15:29:59Z", rules) == ["open", "Sun 02:00 +1030"]
	state("2026-04-04T15:30:00Z", rules) == ["closed", "Sun 01:45 +1030"]
}

test_always_open if {
	state("2026-05-04T05:00:00Z", {"timeZone": "UTC"}) == ["open"]
	limit("2026-05-04T05:00:00Z", {"timeZone": "UTC", "closed": {"max": 0}}) == set()
}

test_closed_numbers if {
	limit("2026-05-04T05:00:00Z", office) == {{
		"field": "max",
		"atMost": 0,
		"reason": "closed until Mon 4 May 2026 08:00 CEST",
		"until": ns("2026-05-04T06:00:00Z"),
	}}
	given := limit("2026-05-04T05:00:00Z", object.union(office, {"closed": {"max": 2, "min": 1, "idle": 0, "assignedJobs": "Wait"}}))
	{[element.field, element.atMost, object.get(element, "assignedJobs", "Serve")] | some element in given} == {
		["max", 2, "Wait"],
		["min", 1, "Serve"],
		["idle", 0, "Serve"],
	}
	served := limit("2026-05-04T05:00:00Z", object.union(office, {"closed": {"idle": 0}}))
	{[element.field, element.atMost] | some element in served} == {["idle", 0]}
	all := limit("2026-05-04T05:00:00Z", object.union(office, {"closed": {"max": 2, "min": 1, "idle": 0}}))
	{[element.field, element.atMost, object.get(element, "assignedJobs", "Serve")] | some element in all} == {
		["max", 2, "Serve"],
		["min", 1, "Serve"],
		["idle", 0, "Serve"],
	}
}

test_next_change if {
	limit("2026-05-04T10:00:00Z", office) == {{
		"field": "max",
		"atMost": 2147483647,
		"reason": "no limit until then",
		"until": ns("2026-05-04T16:30:00Z"),
	}}
}

frozen := {"freezes": [
	{"name": "release", "from": "2026-05-04T10:00:00Z", "to": "2026-05-04T12:00:00Z", "limits": {"max": 3, "idle": 1}},
	{"name": "holidays", "from": "2026-05-04T09:00:00+02:00", "to": "2026-05-05T00:00:00Z"},
]}

test_the_next_of_several_changes if {
	later := {"name": "later", "from": "2026-05-06T10:00:00Z", "to": "2026-05-07T00:00:00Z", "limits": {"max": 1}}
	unlimited := {"name": "unlimited", "from": "2026-05-04T09:30:00Z", "to": "2026-05-07T00:00:00Z"}
	both := object.union(office, {"freezes": [later, frozen.freezes[0], unlimited]})
	{element.until | some element in limit("2026-05-04T09:00:00Z", both)} == {ns("2026-05-04T10:00:00Z")}
	{element.until | some element in limit("2026-05-05T09:00:00Z", both)} == {ns("2026-05-05T16:30:00Z")}
}

test_freezes if {
	every at in ["2026-05-04T10:00:00Z", "2026-05-04T11:59:59Z"] {
		limit(at, frozen) == {
			{"field": "max", "atMost": 3, "reason": "freeze release until Mon 4 May 2026 12:00 UTC", "until": ns("2026-05-04T12:00:00Z")},
			{"field": "idle", "atMost": 1, "reason": "freeze release until Mon 4 May 2026 12:00 UTC", "until": ns("2026-05-04T12:00:00Z")},
		}
	}
	limit("2026-05-04T12:00:00Z", frozen) == set()
	{[element.atMost, element.until] | some element in limit("2026-05-04T09:59:00Z", frozen)} == {[2147483647, ns("2026-05-04T10:00:00Z")]}
}

test_the_zone_is_utc_by_default if hours.time_zone == "UTC" with data.library as {"hours": {}}

test_off if count(scaling.limit) == 0 with input as {"now": 0, "pool": {"scale": {"max": 20}}} with data.library as {}
