# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.cookbook.release_registries_test

import data.corral.template

deny(trust, image) := found if {
	found := template.deny with data.parameters as {"registries": ["registry.acme.example/release/"]}
		with input as {"pool": {"trust": trust}, "pod": {"spec": {"containers": [{"name": "runner", "image": image}]}}}
}

test_signed_off if deny("release", "registry.acme.example/release/runner@sha256:01") == set()

test_elsewhere if count(deny("release", "ghcr.io/acme/runner@sha256:01")) == 1

test_a_longer_name if count(deny("release", "registry.acme.example/released-by-eve/runner@sha256:01")) == 1

test_a_tag_moves if count(deny("release", "registry.acme.example/release/runner:v1")) == 1

test_other_pools_may_use_any if deny("internal", "alpine") == set()
