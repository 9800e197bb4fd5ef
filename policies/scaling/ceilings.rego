# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.scaling

import data.corral.library.ceilings

# METADATA
# scope: rule
# title: Shared ceilings
# description: >-
#  The pools of a group (all, or those of a namespace, of a connection, or with the same value of a label) have no more
#  runners together than the max of a ceiling of data.library.ceilings. With the share Fair, an equal part is kept for
#  each pool that wants it, and what others don't want of theirs may be borrowed; with FirstCome, nothing is kept. Jobs
#  that GitHub had assigned before wait, unless the ceiling has assignedJobs: Serve.
# custom:
#  code: CORRAL-CEIL-001
#  family: ceilings
limit contains {"field": "max", "atMost": state.left, "assignedJobs": ceilings.assigned_jobs(ceiling), "reason": reason} if {
	some ceiling in data.library.ceilings
	state := corral.ceiling(ceiling, input.pool, input.usage)
	reason := ceilings.why(ceiling, state)
}
