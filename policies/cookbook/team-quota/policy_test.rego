# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.cookbook.team_quota_test

import data.corral.scaling

limits(labels, used) := {element.atMost | some element in found} if {
	found := scaling.limit with data.parameters as {"teams": {"payments": 60}}
		with input as {"pool": {"labels": labels}, "usage": {"labels": {"team": {"granted": used}}}}
}

test_others_of_the_team_count if {
	limits({"team": "payments"}, 0) == {60}
	limits({"team": "payments"}, 45) == {15}
	limits({"team": "payments"}, 70) == {0}
}

test_a_pool_alone if {
	found := scaling.limit with data.parameters as {"teams": {"payments": 60}}
		with input as {"pool": {"labels": {"team": "payments"}}, "usage": {"labels": {}}}
	{element.atMost | some element in found} == {60}
}

test_nothing_for_others if {
	limits({"team": "unknown"}, 0) == {0}
	limits({}, 0) == {0}
}
