# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.scaling_ceilings_test

import data.corral.scaling

# group(members) is the input of rules for a group of pools, each [granted, wanted].
group(members) := object.union(sums(members), {"members": [{"granted": granted, "wanted": wanted} |
	some [granted, wanted] in members
]})

# sums(members) omits the list of members: a rule that reads it fails.
sums(members) := {
	"granted": sum([granted | some [granted, _] in members]),
	"pools": count(members),
	"wanting": count([wanted | some [_, wanted] in members; wanted > 0]),
}

nobody := group([])

# limit(most, ceiling, usage) are the limits for a pool of team a in the namespace ci whose max is most.
limit(most, ceiling, usage) := found if {
	found := scaling.limit with data.library as {"ceilings": [object.union({"name": "x"}, ceiling)]}
		with input as {
			"pool": {
				"namespace": "ci", "connection": "acme", "labels": {"team": "a", "size": "large"}, "scale": {"max": most},
			},
			"usage": {
				"granted": 4, # to the pool itself: no ceiling counts it
				"all": object.get(usage, "all", nobody),
				"namespace": object.get(usage, "namespace", nobody),
				"connection": object.get(usage, "connection", nobody),
				"labels": object.get(usage, "labels", {"team": nobody}),
			},
		}
}

# left(most, ceiling, members) is the max that a ceiling for all pools leaves besides these other pools, at most the declared max.
left(most, ceiling, members) := number if {
	some element in limit(most, object.union({"by": "All"}, ceiling), {"all": group(members)})
	number := min([most, element.atMost])
}

test_first_come if {
	ceiling := {"max": 10, "share": "FirstCome"}
	left(100, ceiling, []) == 10
	left(100, ceiling, [[3, 8], [2, 2], [0, 5]]) == 5
	left(100, ceiling, [[10, 20]]) == 0
	left(100, ceiling, [[12, 20]]) == 0
	left(5, ceiling, [[3, 8], [2, 2]]) == 5
	left(5, ceiling, [[3, 8], [3, 2]]) == 4
	left(10, ceiling, []) == 10
}

# The pool itself counts as one that wants runners.
test_fair if {
	every name, case in {
		"nobody else": [10, []],
		"others that want nothing: one is kept": [9, [[0, 0], [0, 0]]],
		"one wants its part": [5, [[0, 20]]],
		"one has its part": [5, [[5, 20]]],
		"one has less than its part, and room for one more": [6, [[3, 3]]],
		"one has borrowed": [2, [[8, 20]]],
		"one has borrowed all": [0, [[10, 20]]],
		"one has borrowed and wants less now": [3, [[7, 2]]],
		"three want a lot": [4, [[0, 20], [0, 20]]],
		"a part is rounded down": [4, [[3, 20], [3, 20]]],
		"one wants a lot, one a bit": [5, [[0, 20], [1, 1]]],
		"one wants a lot, one nothing": [5, [[0, 20], [0, 0]]],
		"one has some of its part": [5, [[2, 20]]],
		"one wants a lot, one more than it has": [4, [[0, 20], [1, 3]]],
		"as many as runners": [1, [[1, 1], [1, 1], [1, 1], [1, 1], [1, 1], [1, 1], [1, 1], [1, 1], [1, 1]]],
		"more than runners": [8, [[2, 9], [0, 1], [0, 1], [0, 1], [0, 1], [0, 1], [0, 1], [0, 1], [0, 1], [0, 1]]],
	} {
		print(name)
		[want, members] := case
		left(100, {"max": 10}, members) == want
	}
}

# The other pool already has at least its part: nothing must be reserved for it.
test_what_is_beyond_a_part if {
	left(100, {"max": 11}, [[4, 5]]) == 6
	left(100, {"max": 11}, [[5, 3]]) == 6
	left(100, {"max": 11}, [[4, 4]]) == 6
	left(100, {"max": 12}, [[4, 4]]) == 7
}

test_a_part_is_rounded_down_where_one_is_kept if left(100, {"max": 12}, [[0, 20], [0, 20], [0, 0]]) == 5

# A pool whose max is lower than what is left can still want more than its part.
test_declared_max if {
	left(8, {"max": 10}, [[0, 20]]) == 5
	left(5, {"max": 10}, [[0, 20]]) == 5
	left(6, {"max": 10}, [[0, 0]]) == 6
	left(3, {"max": 9}, [[7, 7], [0, 3]]) == 0
}

test_one_runner if {
	left(100, {"max": 2}, [[0, 1], [0, 0]]) == 1
	left(100, {"max": 1}, [[0, 0], [0, 0]]) == 1
	left(100, {"max": 1}, [[1, 1]]) == 0
	left(100, {"max": 0}, []) == 0
	left(100, {"max": 2}, [[0, 0]]) == 1
}

# parts(members) is what the members claim for each part up to 20. The controller passes it instead of the members.
parts(members) := [{
	"part": part,
	"claimed": sum([max([granted, min([wanted, part])]) | some [granted, wanted] in members]),
	"below": count([1 | some [granted, wanted] in members; max([granted, wanted]) < part]),
} |
	some part in numbers.range(0, 20)
]

test_parts_instead_of_members if {
	every members in [[[2, 2]], [[0, 3], [1, 0]], [[4, 4], [3, 1], [0, 0]], [[0, 0]], [[0, 20]], [[8, 20]], [[0, 20], [1, 1]], [[7, 2]], [[10, 20], [0, 3]]] {
		by_parts := {element.atMost | some element in limit(100, {"by": "All", "max": 20}, {"all": object.union(sums(members), {"parts": parts(members)})})}
		by_members := {element.atMost | some element in limit(100, {"by": "All", "max": 20}, {"all": group(members)})}
		by_parts == by_members
		count(by_parts) == 1
	}
}

test_no_look_at_others_when_there_is_plenty if {
	{element.atMost | some element in limit(3, {"by": "All", "max": 9}, {"all": {"granted": 6, "pools": 2}})} == {3}
	left(4, {"max": 9}, [[3, 3], [3, 3]]) == 3
	left(3, {"max": 9}, [[7, 7], [0, 0]]) == 2
}

# A floor of another policy can raise the max above the declared max, but not above the ceiling.
test_a_ceiling_is_said_though_less_is_declared if {
	every share in ["Fair", "FirstCome"] {
		found := limit(3, {"by": "All", "max": 20, "share": share}, {"all": group([[4, 4]])})
		{[element.atMost, element.reason] | some element in found} == {[16, "ceiling x"]}
	}
}

test_groups if {
	other := group([[4, 4]])
	every name, case in {
		"All": [{"by": "All"}, {"all": other}, ""],
		"Namespace": [{"by": "Namespace"}, {"namespace": other}, " of namespace ci"],
		"Connection": [{"by": "Connection"}, {"connection": other}, " of connection acme"],
		"Label": [{"by": "Label", "labelKey": "team"}, {"labels": {"team": other}}, " with team=a"],
	} {
		print(name)
		[by, usage, whose] := case
		limit(100, object.union(by, {"max": 10, "share": "FirstCome"}), usage) == {{
			"field": "max",
			"atMost": 6,
			"assignedJobs": "Wait",
			"reason": sprintf("ceiling x: of 10, other pools%s have 4", [whose]),
		}}
	}
}

test_what_is_kept_is_said if {
	{element.reason | some element in limit(100, {"by": "All", "max": 10}, {"all": group([[3, 4]])})} == {
		"ceiling x: of 10, other pools have 3, and 2 are kept for them",
	}
}

test_labels if {
	count(limit(100, {"by": "Label", "labelKey": "tier", "max": 10}, {})) == 0
	alone := limit(100, {"by": "Label", "labelKey": "size", "max": 10}, {"labels": {}})
	{element.atMost | some element in alone} == {10}
}

test_overrides if {
	ceiling := {"by": "Namespace", "max": 10, "overrides": {"ci": 3, "other": 50}}
	{element.atMost | some element in limit(100, ceiling, {})} == {3}
	{element.atMost | some element in limit(100, object.union(ceiling, {"overrides": {"ci": 0}}), {})} == {0}
	{element.atMost | some element in limit(100, {"by": "Namespace", "max": 10, "overrides": {"other": 50}}, {})} == {10}
	by_label := {"by": "Label", "labelKey": "team", "max": 10, "overrides": {"a": 4}}
	{element.atMost | some element in limit(100, by_label, {})} == {4}
	by_connection := {"by": "Connection", "max": 10, "overrides": {"acme": 5}}
	{element.atMost | some element in limit(100, by_connection, {})} == {5}
}

test_soft if {
	{element.assignedJobs | some element in limit(100, {"by": "All", "max": 1, "assignedJobs": "Serve"}, {})} == {"Serve"}
	{element.assignedJobs | some element in limit(100, {"by": "All", "max": 1, "assignedJobs": "Wait"}, {})} == {"Wait"}
}

test_off if count(scaling.limit) == 0 with input as {"pool": {"scale": {"max": 20}}} with data.library as {}
