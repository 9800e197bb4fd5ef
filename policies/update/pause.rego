# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.update

import data.corral.library.pause

# METADATA
# scope: rule
# title: No updates while paused
# description: With data.library.pause, updates are held, until its end if it has one.
# custom:
#  code: CORRAL-PAUSE-011
#  family: pause
rollout contains object.union(pause.end, {"hold": true, "reason": pause.reason}) if data.library.pause
