# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# scope: package
# title: Limits by trust
# description: |
#  The trust of a pool limits its number of runners: few for public repositories, more for internal ones. A pool without
#  a trust, or with a trust that is not listed, counts as public.
# custom:
#  kind: ClusterRunnerPolicy
#  parameters:
#   max: {public: 5, internal: 50, release: 20}
package corral.scaling

limit contains {"field": "max", "atMost": most, "reason": sprintf("trust %s has at most %d runners", [trust, most])} if {
	most := data.parameters.max[trust]
}

limit contains {"field": "idle", "atMost": 0, "reason": "no free runners for public code"} if trust == "public"

trust := input.pool.trust if {
	data.parameters.max[input.pool.trust]
} else := "public"
