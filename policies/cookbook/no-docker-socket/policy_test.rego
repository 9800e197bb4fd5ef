# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.template_test

import data.corral.template

deny(path) := found if {
	found := template.deny with input as {"pod": {"spec": {"volumes": [
		{"name": "work", "emptyDir": {}},
		{"name": "host", "hostPath": {"path": path}},
	]}}}
}

test_the_socket if {
	{finding.path | some finding in deny("/var/run/docker.sock")} == {"spec.volumes[1].hostPath.path"}
}

test_what_it_lies_in if {
	every path in ["/", "/run", "/run/", "/var/run"] {
		count(deny(path)) > 0
	}
}

test_other_paths if {
	every path in ["/var/cache/ci", "/run/docker.sockets", "/ru"] {
		deny(path) == set()
	}
}
