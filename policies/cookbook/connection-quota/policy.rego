# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# scope: package
# title: A quota for each connection
# description: |
#  All pools of one GitHubConnection share a quota, and some connections have a larger one. Half of the rest is reserved
#  for later pools, so that one pool alone never takes everything. `library.ceilings` shares more exactly.
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
