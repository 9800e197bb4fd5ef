# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# scope: package
# title: A quota for each connection
# description: |
#  The pools of each GitHubConnection share a quota, which is larger for some connections. A pool gets at most half of the
#  runners that are left, so that one pool alone never takes the whole quota. `library.ceilings` divides it more precisely.
# custom:
#  kind: ClusterRunnerPolicy
#  parameters:
#   runners: 40
#   connections: {acme-oss: 10}
package corral.scaling

limit contains {"field": "max", "atMost": share, "assignedJobs": "Wait", "reason": reason} if {
	quota := object.get(data.parameters.connections, input.pool.connection, data.parameters.runners)
	left := max([0, quota - input.usage.connection.granted])
	share := min([left, max([input.usage.granted, ceil(left / 2)])])
	reason := sprintf("connection %s has a quota of %d", [input.pool.connection, quota])
}
