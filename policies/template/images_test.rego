# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.template_images_test

import data.corral.template

digest := "sha256:0123456789012345678901234567890123456789012345678901234567890123"

pod(image) := {"pod": {"spec": {"containers": [{"name": "runner", "image": image}]}}}

deny(image, images) := found if {
	found := template.deny with input as pod(image) with data.library as {"images": images}
}

# Each case contains a pattern, an image that it allows, and an image that it does not allow.
test_allowed if {
	every name, case in {
		"a registry": ["ghcr.io/", "ghcr.io/a/b:1", "ghcr.io.evil.com/a/b:1"],
		"a registry with a port": ["localhost:5000/", "localhost:5000/a", "localhost/a"],
		"a folder": ["ghcr.io/acme/", "ghcr.io/acme/runner:1", "ghcr.io/acme-evil/runner:1"],
		"a folder with a star": ["ghcr.io/acme/*", "ghcr.io/acme/a/b:1", "ghcr.io/acme-evil/a"],
		"not the folder itself": ["ghcr.io/acme/", "ghcr.io/acme/a", "ghcr.io/acme:1"],
		"a name": ["ghcr.io/acme", "ghcr.io/acme/runner:1", "ghcr.io/acme-evil/runner:1"],
		"a name with any tag": ["ghcr.io/acme/runner", "ghcr.io/acme/runner:1", "ghcr.io/acme/runner2:1"],
		"a name with any digest": ["ghcr.io/acme/runner", concat("@", ["ghcr.io/acme/runner", digest]), "ghcr.io/acme/run"],
		"a name alone": ["ghcr.io/acme/runner", "ghcr.io/acme/runner", "ghcr.io/acme/runner.evil"],
		"a tag": ["ghcr.io/acme/runner:v1", "ghcr.io/acme/runner:v1", "ghcr.io/acme/runner:v11"],
		"a tag with any digest": ["ghcr.io/acme/runner:v1", concat("@", ["ghcr.io/acme/runner:v1", digest]), "ghcr.io/acme/runner"],
		"the beginning of a tag": ["ghcr.io/acme/runner:v1.*", "ghcr.io/acme/runner:v1.2", "ghcr.io/acme/runner:v2.1"],
		"the beginning of a name": ["ghcr.io/acme-*", "ghcr.io/acme-dev/x", "ghcr.io/acme/x"],
		"a star in the middle": ["ghcr.io/*/runner", "ghcr.io/a/b/runner:1", "ghcr.io/a/runner2"],
		"a star in the middle, and what is below": ["ghcr.io/*/runner", "ghcr.io/a/runner/x@sha256:1", "ghcr.io/runner"],
		"a star in the middle of a folder": ["ghcr.io/acme-*/ci/", "ghcr.io/acme-x/ci/runner", "ghcr.io/acme-x/cd/runner"],
		"a star in the middle and at the end": ["ghcr.io/*/ci-*", "ghcr.io/a/ci-runner:1", "ghcr.io/a/runner:ci-1"],
		"hosts": ["*.acme.com/", "eu.acme.com/x", "evil.com/x.acme.com/y"],
		"hosts with a path": ["*.acme.com/ci/*", "eu.acme.com/ci/x", "eu.acme.com/cd/x"],
		"any host, and a star in the middle": ["*.acme.com/r*er", "eu.acme.com/runner:1", "eu.acme.com/runner1"],
		"any host": ["*/ci/", "evil.com/ci/x", "evil.com/x/ci/y"],
		"no host": ["library/alpine", "alpine:3", "alpine2"],
		"the folder of no host": ["library/", "alpine", "acme/alpine"],
		"docker.io": ["docker.io/", "acme/x:1", "quay.io/acme/x"],
		"docker.io with a star": ["docker.io/*", "alpine", "quay.io/alpine"],
		"docker.io by its other name": ["index.docker.io/acme/", "acme/x", "acme2/x"],
		"an image by the other name": ["docker.io/acme/", "index.docker.io/acme/x", "index.docker.io/x"],
		"an image of docker.io, not who has that name": ["docker.io/alpine", "alpine:3", "alpine/git"],
		"who has that name": ["docker.io/alpine/", "alpine/git", "alpine:3"],
		"an image of docker.io in full": ["docker.io/library/alpine", concat("@", ["docker.io/alpine", digest]), "docker.io/acme/alpine"],
		"a registry in capitals": ["docker.io/", "evil/runner:1", "EVIL/runner:1"],
		"a pattern in capitals": ["ACME/", "ACME/runner:1", "acme/runner:1"],
		"a registry by its address": ["[::1]:5000/", "[::1]:5000/x", "x"],
		"localhost": ["localhost/", "localhost/x", "localhos/x"],
	} {
		[pattern, good, bad] := case
		print(name)
		deny(good, {"allowed": ["quay.io/other/", pattern]}) == set()
		count(deny(bad, {"allowed": ["quay.io/other/", pattern]})) == 1
	}
}

test_any if {
	deny("alpine", {"allowed": ["*"]}) == set()
	deny("ghcr.io/a/b@sha256:0", {"allowed": ["*"]}) == set()
}

test_what_is_said if {
	deny("ghcr.io/evil/runner:1", {"allowed": ["ghcr.io/acme/", "quay.io/acme/"]}) == {{
		"code": "CORRAL-IMG-001",
		"msg": "image ghcr.io/evil/runner:1 is not of an allowed registry or repository",
		"path": "spec.containers[0].image",
		"remediation": "use an image of ghcr.io/acme/, quay.io/acme/",
		"severity": "high",
	}}
}

test_everywhere if {
	found := template.deny with data.library as {"images": {"allowed": ["ghcr.io/acme/"], "requireDigest": true}}
		with input as {"pod": {"spec": {
			"initContainers": [
				{"name": "good", "image": concat("@", ["ghcr.io/acme/a", digest])},
				{"name": "bad", "image": "alpine"},
			],
			"containers": [{"name": "bad", "image": "alpine"}],
			"volumes": [
				{"name": "work", "emptyDir": {}},
				{"name": "tools", "image": {"reference": "quay.io/evil/tools:1"}},
			],
		}}}
	{[finding.code, finding.path] | some finding in found} == {
		["CORRAL-IMG-001", "spec.initContainers[1].image"],
		["CORRAL-IMG-001", "spec.containers[0].image"],
		["CORRAL-IMG-001", "spec.volumes[1].image.reference"],
		["CORRAL-IMG-002", "spec.initContainers[1].image"],
		["CORRAL-IMG-002", "spec.containers[0].image"],
		["CORRAL-IMG-002", "spec.volumes[1].image.reference"],
	}
}

# Each pod has a denied image in only one of the three possible places.
test_each_place_is_looked_at if {
	every path, spec in {
		"spec.containers[0].image": {"containers": [{"name": "a", "image": "evil"}]},
		"spec.initContainers[0].image": {"containers": [], "initContainers": [{"name": "a", "image": "evil"}]},
		"spec.volumes[0].image.reference": {"containers": [], "volumes": [{"name": "a", "image": {"reference": "evil"}}]},
	} {
		print(path)
		found := template.deny with input as {"pod": {"spec": spec}} with data.library as {"images": {"allowed": ["ghcr.io/acme/"]}}
		{finding.path | some finding in found} == {path}
	}
}

test_digests if {
	every image in [
		concat("@", ["alpine", digest]),
		concat("@", ["ghcr.io/a/b:1", digest]),
		"alpine@sha512:01",
	] {
		deny(image, {"requireDigest": true}) == set()
	}
	every image in ["alpine", "ghcr.io/a/b:1", "ghcr.io/a/sha256:01", "localhost:5000/a"] {
		{finding.code | some finding in deny(image, {"requireDigest": true})} == {"CORRAL-IMG-002"}
	}
	deny("alpine", {"requireDigest": false}) == set()
}

test_off if count(template.deny) == 0 with input as pod("evil.com/x") with data.library as {}
