# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.template_resources_test

import data.corral.template

deny(spec, rules) := {[finding.code, finding.path, finding.msg] | some finding in found} if {
	found := template.deny with input as {"pod": {"spec": spec}} with data.library as {"resources": rules}
}

container(name, limits, requests) := {"name": name, "resources": {"limits": limits, "requests": requests}}

test_off if count(template.deny) == 0 with input as {"pod": {"spec": {"containers": [{"name": "a"}]}}} with data.library as {}

test_requests if {
	rules := {"requireRequests": ["cpu", "memory"]}
	deny({"containers": [container("a", {}, {"cpu": "1", "memory": "1Gi"})]}, rules) == set()
	deny({"containers": [container("a", {"memory": "1Gi"}, {"cpu": "1"})]}, rules) == set()
	deny({"containers": [{"name": "a"}], "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}}, rules) == set()
	deny({"containers": [container("a", {}, {"cpu": "1", "memory": "1Gi"}), container("b", {}, {"memory": "1Gi"})]}, rules) == {
		["CORRAL-RES-001", "spec.containers[1].resources.requests", "container b requests no cpu"],
	}
	deny({"containers": [container("a", {"cpu": "1", "memory": "1Gi"}, {})], "initContainers": [{"name": "b"}]}, rules) == {
		["CORRAL-RES-001", "spec.initContainers[0].resources.requests", "container b requests no cpu"],
		["CORRAL-RES-001", "spec.initContainers[0].resources.requests", "container b requests no memory"],
	}
}

test_limits if {
	rules := {"requireLimits": ["memory"]}
	deny({"containers": [container("a", {"memory": "1Gi"}, {})]}, rules) == set()
	deny({"containers": [{"name": "a"}], "resources": {"limits": {"memory": "1Gi"}}}, rules) == set()
	deny({"containers": [container("a", {"cpu": "1"}, {"memory": "1Gi"})], "initContainers": [container("b", {"memory": 1}, {})]}, rules) == {
		["CORRAL-RES-002", "spec.containers[0].resources.limits", "container a has no limit for memory"],
	}
	deny({"containers": [container("a", {"memory": 1}, {})], "initContainers": [{"name": "b"}]}, rules) == {
		["CORRAL-RES-002", "spec.initContainers[0].resources.limits", "container b has no limit for memory"],
	}
}

test_no_limits_at_all if {
	deny({"containers": [{"name": "a"}]}, {"requireLimits": ["cpu"], "requireRequests": ["cpu"]}) == {
		["CORRAL-RES-001", "spec.containers[0].resources.requests", "container a requests no cpu"],
		["CORRAL-RES-002", "spec.containers[0].resources.limits", "container a has no limit for cpu"],
	}
}

test_at_most if {
	rules := {"maxPerPod": {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "1"}}
	two := [
		container("a", {"cpu": "3", "memory": "4Gi", "nvidia.com/gpu": "1"}, {}),
		container("b", {"cpu": "1", "memory": "4Gi"}, {}),
	]
	deny({"containers": two}, rules) == set()
	deny({"containers": [{"name": "a"}]}, rules) == set()
	deny({"containers": array.concat(two, [container("c", {"cpu": "1m", "memory": "1", "nvidia.com/gpu": 1}, {})])}, rules) == {
		["CORRAL-RES-003", "spec.containers", "the pod takes 4001m of cpu in total, more than 4"],
		["CORRAL-RES-003", "spec.containers", "the pod takes 8589934593 of memory in total, more than 8Gi"],
		["CORRAL-RES-003", "spec.containers", "the pod takes 2 of nvidia.com/gpu in total, more than 1"],
	}
	deny({"containers": two, "overhead": {"cpu": "250m"}}, rules) == {
		["CORRAL-RES-003", "spec.containers", "the pod takes 4250m of cpu in total, more than 4"],
	}
}

# Each case contains the expected total and the pod.
test_added_up_as_kubernetes_does if {
	a := container("a", {"cpu": "1"}, {"cpu": "500m"})
	always := {"restartPolicy": "Always"}
	every name, case in {
		"limits count, not requests": [2, {"containers": [a, a]}],
		"requests without a limit": [1500, {"containers": [a, container("b", {}, {"cpu": "500m"})]}],
		"a small init container": [2, {"containers": [a, a], "initContainers": [a]}],
		"a large init container": [3, {"containers": [a, a], "initContainers": [container("b", {"cpu": 3}, {}), a]}],
		"a sidecar": [3, {"containers": [a, a], "initContainers": [object.union(a, always)]}],
		"an init container after a sidecar": [4, {"containers": [a, a], "initContainers": [object.union(a, always), container("b", {"cpu": 3}, {})]}],
		"an init container before a sidecar": [3, {"containers": [a], "initContainers": [container("b", {"cpu": 3}, {}), object.union(a, always)]}],
		"the limit of the pod": [5, {"containers": [a, a], "resources": {"limits": {"cpu": "5"}, "requests": {"cpu": "1"}}}],
		"the limit of the pod, and overhead": [6, {"containers": [a], "resources": {"limits": {"cpu": 5}}, "overhead": {"cpu": 1}}],
		"a large request of the pod": [6, {"containers": [a, a], "resources": {"requests": {"cpu": "6"}}}],
		"a small request of the pod": [2, {"containers": [a, a], "resources": {"requests": {"cpu": "1"}}}],
	} {
		print(name)
		[total, spec] := case
		most := {2: "2", 3: "3", 4: "4", 5: "5", 6: "6", 1500: "1500m"}[total]
		less := {2: "1999m", 3: "2999m", 4: "3999m", 5: "4999m", 6: "5999m", 1500: "1499m"}[total]
		deny(spec, {"maxPerPod": {"cpu": most}}) == set()
		count(deny(spec, {"maxPerPod": {"cpu": less}})) == 1
	}
}

test_odd_quantities if {
	every quantity in ["1000000u", "1000000000n", 1, "1", "1000m"] {
		spec := {"containers": [container("a", {"x": quantity}, {}), container("b", {}, {"x": "1"})]}
		deny(spec, {"maxPerPod": {"x": "2"}}) == set()
		count(deny(spec, {"maxPerPod": {"x": "1999m"}})) == 1
		count(deny(spec, {"maxPerPod": {"x": "1999999u"}})) == 1
		count(deny(spec, {"maxPerPod": {"x": 1}})) == 1
	}
}
