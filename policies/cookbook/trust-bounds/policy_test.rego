# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.cookbook.trust_bounds_test

import data.corral.scaling

limits(trust) := {[element.field, element.atMost] | some element in found} if {
	found := scaling.limit with data.parameters as {"max": {"public": 5, "internal": 50}} with input as {"pool": {"trust": trust}}
}

test_bounds if {
	limits("internal") == {["max", 50]}
	limits("public") == {["max", 5], ["idle", 0]}
}

test_unknown_is_public if {
	limits("") == {["max", 5], ["idle", 0]}
	limits("friends") == {["max", 5], ["idle", 0]}
}
