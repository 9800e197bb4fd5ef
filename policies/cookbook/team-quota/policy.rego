# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# scope: package
# title: A quota for each team
# description: |
#  All pools with the same value of the label `team`, in all namespaces, share the quota of the team. Teams without a quota
#  get no runners. `library.ceilings` does this without Rego, and with fair shares.
# custom:
#  kind: ClusterRunnerPolicy
#  parameters:
#   teams: {payments: 60, web: 20}
package corral.scaling

limit contains {"field": "max", "atMost": max([0, granted - of_others]), "assignedJobs": "Wait", "reason": reason} if {
	team := input.pool.labels.team
	granted := object.get(data.parameters.teams, team, 0)
	reason := sprintf("team %s has a quota of %d runners", [team, granted])
}

limit contains {"field": "max", "atMost": 0, "reason": "the pool has no label team"} if not input.pool.labels.team

# of_others is the number of runners granted to the team's other pools, or 0 if there are none.
of_others := granted if {
	granted := input.usage.labels.team.granted
} else := 0
