# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.scaling

import data.corral.library.ceilings

# METADATA
# scope: rule
# title: Shared ceilings
# description: >-
#  The pools of a group (all, or those of a namespace, of a connection, or with the same value of a label) may have no
#  more runners together than the max of a ceiling of data.library.ceilings. With the share Fair, each pool that wants
#  runners may have an equal part, and what others don't want of theirs; with FirstCome, what others weren't granted.
#  Jobs that GitHub had assigned before wait, unless the ceiling is soft.
# custom:
#  code: CORRAL-CEIL-001
#  family: ceilings
limit contains {
	"field": "max",
	"atMost": max([0, left]),
	"hard": ceilings.hard(ceiling),
	"reason": sprintf("ceiling %s: %s have %d of %d", [ceiling.name, ceilings.whose(ceiling), others.granted, ceilings.most(ceiling)]),
} if {
	some [ceiling, left, others] in ceilings.shares
}
