# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# scope: package
# title: Every update begins with a canary
# description: |
#  A pool that declares no canary gets one: one runner of the new template must succeed before the others follow.
#  Release pools are never updated all at once.
# custom:
#  kind: ClusterRunnerPolicy
package corral.update

rollout contains {"canary": 1, "reason": "every update begins with a canary"} if input.change.canary == 0

rollout contains {"strategy": "RollingUpdate", "reason": "release pools are updated step by step"} if {
	input.pool.trust == "release"
	input.change.strategy == "Recreate"
}
