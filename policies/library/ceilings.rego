# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# scope: package
# title: Ceilings
# description: >-
#  The maximum that a group of pools may have together. corral.ceiling computes what the other pools leave, and its
#  description in internal/policy/ceiling.go shows why the sum of the grants never exceeds a ceiling.
package corral.library.ceilings

# why(ceiling, state) is the reason. It is short if the ceiling leaves at least the pool's declared max.
why(ceiling, state) := sprintf("ceiling %s", [ceiling.name]) if {
	state.left >= input.pool.scale.max
} else := sprintf("ceiling %s: of %d, other pools%s have %d%s", [
	ceiling.name, state.most, whose(ceiling.by, ceiling), state.granted, and_kept((state.most - state.granted) - state.left),
])

# whose(by, ceiling) describes what the pools have in common.
whose("All", _) := ""

whose("Namespace", _) := sprintf(" of namespace %s", [input.pool.namespace])

whose("Connection", _) := sprintf(" of connection %s", [input.pool.connection])

whose("Label", ceiling) := sprintf(" with %s=%s", [ceiling.labelKey, input.pool.labels[ceiling.labelKey]])

# and_kept(kept) describes how many more runners are reserved for other pools.
and_kept(kept) := "" if kept <= 0

and_kept(kept) := sprintf(", and %d are kept for them", [kept]) if kept > 0

# assigned_jobs(ceiling) determines what happens to jobs that GitHub assigned earlier.
assigned_jobs(ceiling) := object.get(ceiling, "assignedJobs", "Wait")
