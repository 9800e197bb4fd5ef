# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# scope: package
# title: Ceilings
# description: >-
#  What a group of pools may have together.
#
#  Why the sum of what is granted never exceeds a ceiling: a pool's max becomes the ceiling minus a claim for each
#  other pool of the group, and no claim is less than what that pool was granted. So a pool that is granted more than it
#  had gets no more than what the others leave, and the sum is within the ceiling after that grant. A pool that may have
#  less than it was granted keeps at most that: a runner with a job isn't ended. Then the sum doesn't grow. It begins at
#  0, so by induction over the grants it is never above the ceiling, in whatever order pools are asked, as long as each
#  grant is recorded before the next pool is asked. When a ceiling is lowered, or first holds, the sum falls towards it.
package corral.library.ceilings

# limits are what each ceiling leaves to the pool, as [ceiling, rest, reason]. It may be more than the pool declares: it
# bounds what others raise that to.
limits contains [ceiling, rest, reason] if {
	some ceiling in data.library.ceilings
	others := group(ceiling.by, ceiling)
	most := at_most(ceiling)
	rest := max({0, left(object.get(ceiling, "share", "Fair"), most, others)})
	reason := why(ceiling, most, others.granted, rest)
}

# why(ceiling, most, granted, rest) gives the reason; in short, if the pool declares less anyway.
why(ceiling, most, granted, rest) := sprintf("ceiling %s", [ceiling.name]) if {
	rest >= input.pool.scale.max
} else := sprintf("ceiling %s: of %d, other pools%s have %d%s", [
	ceiling.name, most, whose(ceiling.by, ceiling), granted, and_kept((most - granted) - rest),
])

# group(by, ceiling) are the other pools that share it. For a label, only a pool that has it shares.
group("All", _) := input.usage.all

group("Namespace", _) := input.usage.namespace

group("Connection", _) := input.usage.connection

group("Label", ceiling) := object.get(input.usage.labels, ceiling.label, {"granted": 0, "pools": 0, "members": []}) if {
	input.pool.labels[ceiling.label]
}

# key(by, ceiling) is what the pools of the group have in common.
key("All", _) := ""

key("Namespace", _) := input.pool.namespace

key("Connection", _) := input.pool.connection

key("Label", ceiling) := input.pool.labels[ceiling.label]

# at_most(ceiling) is how many the group may have.
at_most(ceiling) := most if {
	most := ceiling.overrides[key(ceiling.by, ceiling)]
} else := ceiling.max

# whose(by, ceiling) says it in words.
whose("All", _) := ""

whose("Namespace", _) := sprintf(" of namespace %s", [input.pool.namespace])

whose("Connection", _) := sprintf(" of connection %s", [input.pool.connection])

whose("Label", ceiling) := sprintf(" with %s=%s", [ceiling.label, input.pool.labels[ceiling.label]])

# and_kept(kept) says how many are kept for others beyond what they have.
and_kept(kept) := "" if kept <= 0

and_kept(kept) := sprintf(", and %d are kept for them", [kept]) if kept > 0

# left(share, most, others) is what others leave.
#
# Fair keeps what they want, up to an equal part for each pool that wants any: the rest may be borrowed. Beyond its own
# part, a pool leaves one runner to those that have less than theirs. A pool that may have none isn't given jobs by
# GitHub, so it could never show that it wants some: with that one it can, and then gets more of its part, as those that
# borrowed it finish jobs. Where more pools want runners than there are, a part is less than one, and it is whoever asks
# first.
left("FirstCome", most, others) := most - others.granted

# As in most cases, there is an end to it without a look at each pool: the pool wants no more than an equal part if all
# wanted any, and the others leave it that. Or each of the others has and wants less than its part.
left("Fair", most, others) := most - others.granted if {
	input.pool.scale.max * (others.pools + 1) <= most
	input.pool.scale.max + others.granted <= most
} else := with_one_to_spare(rest, part) if {
	part := part_of(most, others.pools, others.wanting)
	others.pools > 0
	others.largest < part
	rest := most - others.claimed
} else := among(most, others.members, part) if {
	part := part_of(most, others.pools, count([true | others.members[_].wanted > 0]))
}

among(most, members, part) := with_one_to_spare(most - claims(members, part), part) if {
	has_less(members, part)
} else := most - claims(members, part)

has_less(members, part) if {
	some member in members
	member.wanted < part
	member.granted < part
}

with_one_to_spare(rest, part) := max({rest - 1, min({rest, part})})

# part_of(most, others, wanting) is the equal part of a pool when so many of the others want runners. One is kept for
# those that want none, if there is more than one for each that wants some.
part_of(most, others, wanting) := floor((most - 1) / (wanting + 1)) if {
	others > wanting
	most > wanting + 1
} else := floor(most / (wanting + 1))

# claims(members, part) is what they claim: what they want up to a part, and what they were granted.
claims(members, part) := sum([member.granted | some member in members]) + (sum([more |
	some member in members
	member.wanted <= part
	member.granted < member.wanted
	more := member.wanted - member.granted
]) + sum([more |
	some member in members
	member.wanted > part
	member.granted < part
	more := part - member.granted
]))
