# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0
package corral.scaling

limit contains {"field": "max", "atMost": data.cap, "reason": "team cap"} if input.pool.labels.team

limit contains {"field": "max", "atMost": 20, "reason": "out of hours"} if time.clock([input.now, input.zone])[0] >= 18
