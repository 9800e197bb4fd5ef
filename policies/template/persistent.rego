# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.template

import data.corral.library.allowed

# METADATA
# scope: rule
# title: Runners that stay by the pool's name
# description: >-
#  A pool must not have lifetime Persistent, unless data.library.persistent.allowed names it: its pods get a token that registers any
#  runner of the connection, and each job finds what the one before left.
# custom:
#  code: CORRAL-STAY-001
#  family: persistent
#  severity: high
#  remediation: leave lifetime at Job, or have the pool named in library.persistent.allowed
deny contains {"msg": sprintf("runners of pool %s stay", [name])} if {
	data.library.persistent
	input.pool.lifetime == "Persistent"
	some [_, name] in corral.unlisted({"pool": sprintf("%s/%s", [input.pool.namespace, input.pool.name])}, allowed.persistent)
}
