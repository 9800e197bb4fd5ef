# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.template_test

import data.corral.template

pod(container) := {"pod": {"spec": {"containers": [object.union({"name": "runner", "image": "runner:2.330.0"}, container)]}}}

test_a_plain_pod_may_run if {
	count(template.deny) == 0 with input as pod({})
	count(template.warn) == 0 with input as pod({})
}

test_a_privileged_pod_may_not if {
	some denied in template.deny with input as pod({"securityContext": {"privileged": true}})
	denied.path == "spec.containers[0].securityContext.privileged"
}

test_latest_is_warned_of if {
	some warned in template.warn with input as pod({"image": "runner:latest"})
	warned.code == "latest"
}
