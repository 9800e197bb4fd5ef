# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.template

import data.corral.library.allowed

# METADATA
# scope: rule
# title: Persistent runners only in allowed pools
# description: >-
#  A pool must not have lifetime Persistent, unless data.library.persistent.allowed names it: its pods get a token that registers any
#  runner of the connection, and each job finds the files that the previous job left.
# custom:
#  code: CORRAL-STAY-001
#  family: persistent
#  severity: high
#  remediation: leave lifetime at Job, or add the pool to library.persistent.allowed
deny contains {"msg": sprintf("runners of pool %s stay", [name])} if {
	data.library.persistent
	input.pool.lifetime == "Persistent"
	some [_, name] in corral.unlisted({"pool": sprintf("%s/%s", [input.pool.namespace, input.pool.name])}, allowed.persistent)
}
