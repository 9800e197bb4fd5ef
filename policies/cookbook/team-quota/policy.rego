# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# scope: package
# title: A team has so many runners
# description: |
#  All pools with the same label `team` share what the team is granted, in whatever namespace they are. Teams that
#  nobody granted anything get nothing. The same without Rego, and with fair shares, is `library.ceilings`.
# custom:
#  kind: ClusterRunnerPolicy
#  parameters:
#   teams: {payments: 60, web: 20}
package corral.scaling

limit contains {"field": "max", "atMost": max([0, granted - of_others]), "assignedJobs": "Wait", "reason": reason} if {
	team := input.pool.labels.team
	granted := object.get(data.parameters.teams, team, 0)
	reason := sprintf("team %s has %d runners", [team, granted])
}

limit contains {"field": "max", "atMost": 0, "reason": "the pool has no label team"} if not input.pool.labels.team

# of_others is what the team's other pools were granted; there may be none.
of_others := granted if {
	granted := input.usage.labels.team.granted
} else := 0
