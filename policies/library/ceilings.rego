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
#  grant is recorded before the next pool is asked; and when a ceiling is lowered, or first holds, it falls towards it.
package corral.library.ceilings

# shares are what each ceiling leaves to the pool, as [ceiling, rest, others], others being who has how much. Where the
# others leave more than the pool may want anyway, nothing is said.
shares contains [ceiling, left, others] if {
	some ceiling in data.library.ceilings
	ceiling.share == "FirstCome"
	others := group(ceiling)
	left := most(ceiling) - others.granted
	left < input.pool.scale.max
}

shares contains [ceiling, left, others] if {
	some ceiling in data.library.ceilings
	not ceiling.share == "FirstCome"
	others := group(ceiling)
	not ample(most(ceiling), others)
	left := most(ceiling) - claims(most(ceiling), others)
	left < input.pool.scale.max
}

# group(ceiling) are the other pools that share it. For a label, only a pool that has it shares.
group(ceiling) := input.usage.all if ceiling.by == "All"

group(ceiling) := input.usage.namespace if ceiling.by == "Namespace"

group(ceiling) := input.usage.connection if ceiling.by == "Connection"

group(ceiling) := object.get(input.usage.labels, ceiling.label, {"granted": 0, "pools": 0, "members": []}) if {
	ceiling.by == "Label"
	input.pool.labels[ceiling.label]
}

# key(ceiling) is what the pools of the group have in common.
key(ceiling) := "" if ceiling.by == "All"

key(ceiling) := input.pool.namespace if ceiling.by == "Namespace"

key(ceiling) := input.pool.connection if ceiling.by == "Connection"

key(ceiling) := input.pool.labels[ceiling.label] if ceiling.by == "Label"

# most(ceiling) is the most that the group may have.
most(ceiling) := object.get(ceiling, ["overrides", key(ceiling)], ceiling.max)

# ample(most, others) holds if the pool may have all it declares without a look at each of the others: no more than an
# equal part if all wanted runners, and no more than the others leave.
ample(most, others) if {
	input.pool.scale.max * (others.pools + 1) <= most
	input.pool.scale.max + others.granted <= most
}

# claims(most, others) is what the others have a right to: what they were granted, or if they want more, that up to an
# equal part for each pool that wants any. What they don't want is to be had.
claims(most, others) := others.granted + sum([more |
	part := floor(most / (count([true | others.members[_].wanted > 0]) + 1))
	some member in others.members
	member.granted < part
	more := min({member.wanted, part}) - member.granted
	more > 0
])

hard(ceiling) if not ceiling.soft

hard(ceiling) := false if ceiling.soft

# whose(ceiling) names the group.
whose(ceiling) := "other pools" if ceiling.by == "All"

whose(ceiling) := sprintf("other pools of namespace %s", [key(ceiling)]) if ceiling.by == "Namespace"

whose(ceiling) := sprintf("other pools of connection %s", [key(ceiling)]) if ceiling.by == "Connection"

whose(ceiling) := sprintf("other pools with %s=%s", [ceiling.label, key(ceiling)]) if ceiling.by == "Label"
