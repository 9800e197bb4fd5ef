# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.pod_test

import data.corral.pod

test_every_container_by_its_path if {
	pod.containers == {
		"spec.containers[0]": {"name": "runner"},
		"spec.containers[1]": {"name": "proxy"},
		"spec.initContainers[0]": {"name": "sidecar", "restartPolicy": "Always"},
		"spec.ephemeralContainers[0]": {"name": "debug"},
	} with input as {"pod": {"spec": {
		"containers": [{"name": "runner"}, {"name": "proxy"}],
		"initContainers": [{"name": "sidecar", "restartPolicy": "Always"}],
		"ephemeralContainers": [{"name": "debug"}],
	}}}
}

test_no_container if {
	pod.containers == {} with input as {"pod": {"spec": {}}}
}
