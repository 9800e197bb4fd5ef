# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.scaling_test

import data.corral.scaling

test_a_team_has_what_it_is_granted if {
	limits := scaling.limit with input as {"pool": {"labels": {"team": "web"}}} with data.teams as {"web": {"max": 60}}
	limits == {{"field": "max", "atMost": 60, "reason": "team web is granted 60 runners a pool"}}
}

test_others_are_not_bound if {
	count(scaling.limit) == 0 with input as {"pool": {"labels": {"team": "ml"}}} with data.teams as {"web": {"max": 60}}
}
