# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.cookbook.canary_first_test

import data.corral.update

rollout(trust, change) := found if {
	found := update.rollout with input as {"pool": {"trust": trust}, "change": change}
}

test_a_canary if {
	rollout("", {"canary": 0, "strategy": "RollingUpdate"}) == {{"canary": 1, "reason": "every update begins with a canary"}}
}

test_more_canaries_are_fine if rollout("", {"canary": 3, "strategy": "RollingUpdate"}) == set()

test_release_pools if {
	{element.strategy | some element in rollout("release", {"canary": 1, "strategy": "Recreate"})} == {"RollingUpdate"}
	rollout("", {"canary": 1, "strategy": "Recreate"}) == set()
}
