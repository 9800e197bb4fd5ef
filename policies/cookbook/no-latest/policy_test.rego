# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.cookbook.no_latest_test

import data.corral.template

deny(image) := found if {
	found := template.deny with input as {"pod": {"spec": {"initContainers": [{"name": "init", "image": image}]}}}
}

test_versions if {
	every image in ["alpine:3.22", "ghcr.io/acme/runner:v2", "localhost:5000/runner:v2", "runner@sha256:01", "runner:latest@sha256:01"] {
		deny(image) == set()
	}
}

test_no_versions if {
	every image in ["alpine", "alpine:latest", "localhost:5000/runner", "localhost:5000/runner:latest"] {
		{finding.path | some finding in deny(image)} == {"spec.initContainers[0].image"}
	}
}
