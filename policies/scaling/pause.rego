# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.scaling

import data.corral.library.pause

# METADATA
# scope: rule
# title: Paused
# description: >-
#  With data.library.pause, pools accept no jobs and Corral removes their idle runners, until the end of the pause. Jobs that
#  GitHub has already assigned still run.
# custom:
#  code: CORRAL-PAUSE-001
#  family: pause
limit contains object.union(pause.end, {"field": field, "atMost": 0, "reason": pause.reason}) if {
	object.get(data.library.pause, "scope", "Everything") == "Everything"
	some field in ["max", "min", "idle"]
}
