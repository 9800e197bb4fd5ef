# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# How may a change roll out?
package corral.update

# METADATA
# title: Runners of releases are replaced when nobody releases
rollout contains {"hold": true, "reason": "a release is under way"} if input.pool.labels.team == "platform"
