# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0
package corral.update

rollout contains {"canary": 2, "reason": "try it first"} if input.jobs < 10

rollout contains {"hold": true, "reason": "too busy"} if input.jobs >= 10
