# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.cookbook.connection_quota_test

import data.corral.scaling

most(connection, own, others) := element.atMost if {
	found := scaling.limit with data.parameters as {"runners": 40, "connections": {"acme-oss": 10}}
		with input as {"pool": {"connection": connection}, "usage": {"granted": own, "connection": {"granted": others}}}
	some element in found
}

test_half_of_what_is_left if {
	most("acme", 0, 0) == 20
	most("acme", 0, 30) == 5
	most("acme", 0, 39) == 1
	most("acme", 0, 45) == 0
}

test_what_it_has_it_keeps if {
	most("acme", 30, 5) == 30
	most("acme", 30, 15) == 25
}

test_a_quota_of_its_own if most("acme-oss", 0, 0) == 5
