# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.scaling

import data.corral.library.ceilings

# METADATA
# scope: rule
# title: Shared ceilings
# description: >-
#  The pools of a group (all, of a namespace, of a connection, or with one value of a label) have together at most as
#  many runners as the max of a ceiling in data.library.ceilings. With share: Fair, each pool that needs runners has
#  an equal share, and others may borrow unused shares. With share: FirstCome, nothing is reserved. Jobs
#  that GitHub has already assigned wait, unless the ceiling has assignedJobs: Serve.
# custom:
#  code: CORRAL-CEIL-001
#  family: ceilings
limit contains {"field": "max", "atMost": state.left, "assignedJobs": ceilings.assigned_jobs(ceiling), "reason": reason} if {
	some ceiling in data.library.ceilings
	state := corral.ceiling(ceiling, input.pool, input.usage)
	reason := ceilings.why(ceiling, state)
}
