# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.template_allowed_test

import data.corral.template

off := {"pod": {
	"metadata": {"labels": {"a": "b"}},
	"spec": {"nodeName": "a", "serviceAccountName": "a", "tolerations": [{}], "volumes": [{"emptyDir": {"medium": "Memory"}, "nfs": {}}]},
}}

test_off if count(template.deny) == 0 with input as off with data.library as {}

# deny(family, rules, pod) are the denials of the family: the path, and the last word of the message.
deny(family, rules, pod) := {[finding.path, substring(finding.msg, indexof_last(finding.msg), -1)] | some finding in found} if {
	found := template.deny with input as {"pod": pod} with data.library as {family: rules}
}

indexof_last(text) := indexes[count(indexes) - 1] + 1 if indexes := indexof_n(text, " ")

# Each case contains the family, its parameters, a pod spec, and the expected denials.
test_denied if {
	every name, case in {
		"a Secret in an init container": ["secrets", {}, {"initContainers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "npm"}}}]}]}, {["spec.initContainers[0].env[0].valueFrom.secretKeyRef.name", "npm"]}],
		"a Secret that is allowed": ["secrets", {"allowed": ["npm-*"]}, {"imagePullSecrets": [{"name": "npm-read"}]}, set()],
		"the runner's own": ["secrets", {}, {"containers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "linux-1-jit"}}}]}]}, set()],
		"attributes of a driver": ["secrets", {"allowed": ["a"]}, {"volumes": [{"csi": {"volumeAttributes": {"SecretName": "b", "SECRETname": "a", "other": "c"}}}]}, {["spec.volumes[0].csi.volumeAttributes.SecretName", "b"]}],
		"an account": ["serviceAccounts", {}, {"serviceAccountName": "admin"}, {["spec.serviceAccountName", "admin"]}],
		"an account by its former field": ["serviceAccounts", {"allowed": ["ci-*"]}, {"serviceAccount": "admin"}, {["spec.serviceAccount", "admin"]}],
		"a token of no name": ["serviceAccounts", {"allowed": ["ci"]}, {"automountServiceAccountToken": true}, {["spec.automountServiceAccountToken", "server"]}],
		"a token": ["serviceAccounts", {"allowed": ["ci"]}, {"automountServiceAccountToken": true, "serviceAccountName": "ci"}, set()],
		"no token": ["serviceAccounts", {}, {"automountServiceAccountToken": false, "serviceAccountName": "default"}, set()],
		"a projected token": ["serviceAccounts", {}, {"volumes": [{"projected": {"sources": [{"serviceAccountToken": {"path": "a"}}]}}]}, {["spec.volumes[0].projected.sources[0].serviceAccountToken", "server"]}],
		"audiences": ["serviceAccounts", {"audiences": ["sts"]}, {"volumes": [{"projected": {"sources": [{"serviceAccountToken": {"audience": "sts"}}, {"serviceAccountToken": {"audience": "vault"}}]}}]}, {["spec.volumes[0].projected.sources[1].serviceAccountToken.audience", "vault"]}],
		"signers": ["serviceAccounts", {"signers": ["a/*"]}, {"volumes": [{"projected": {"sources": [{"podCertificate": {"signerName": "a/b"}}, {"podCertificate": {"signerName": "b/a"}}]}}]}, {["spec.volumes[0].projected.sources[1].podCertificate.signerName", "b/a"]}],
		"classes": ["scheduling", {"priorityClasses": ["ci"]}, {"priorityClassName": "ci", "runtimeClassName": "kata", "schedulerName": "default-scheduler"}, {["spec.runtimeClassName", "kata"]}],
		"a node": ["scheduling", {}, {"nodeName": "a"}, {["spec.nodeName", "a"]}],
		"a selector": ["scheduling", {"nodeLabels": ["pool=ci-*", "disk"]}, {"nodeSelector": {"pool": "ci-1", "disk": "ssd", "kubernetes.io/arch": "arm64"}}, set()],
		"a selector of another value": ["scheduling", {"nodeLabels": ["pool=ci-*"]}, {"nodeSelector": {"pool": "db"}}, {["spec.nodeSelector.pool", "pool=db"]}],
		"preferred affinity": ["scheduling", {"nodeLabels": ["pool=ci"]}, {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"preference": {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["ci", "db"]}]}}]}}}, {["spec.affinity.nodeAffinity", "pool=db"]}],
		"affinity against": ["scheduling", {"nodeLabels": ["pool=ci"]}, {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "NotIn", "values": ["ci"]}]}]}}}}, {["spec.affinity.nodeAffinity", "pool=*"]}],
		"topology keys": ["scheduling", {"nodeLabels": ["rack"]}, {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "rack"}, {"topologyKey": "gpu"}]}, "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"podAffinityTerm": {"topologyKey": "gpu"}}]}}, "topologySpreadConstraints": [{"topologyKey": "kubernetes.io/hostname"}, {"topologyKey": "topology.kubernetes.io/zone"}, {"topologyKey": "disk"}]}, {["spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[1].topologyKey", "gpu=*"], ["spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.topologyKey", "gpu=*"], ["spec.topologySpreadConstraints[2].topologyKey", "disk=*"]}],
		"a toleration": ["scheduling", {"tolerations": ["ci", "arch=arm64"]}, {"tolerations": [{"key": "ci", "operator": "Exists"}, {"key": "arch", "value": "arm64"}]}, set()],
		"a toleration of any value": ["scheduling", {"tolerations": ["arch=arm64"]}, {"tolerations": [{"key": "arch", "operator": "Exists"}]}, {["spec.tolerations[0]", "arch=*"]}],
		"a toleration of everything": ["scheduling", {"tolerations": ["ci"]}, {"tolerations": [{"operator": "Exists"}]}, {["spec.tolerations[0]", "=*"]}],
		"kinds of volumes": ["volumes", {"kinds": ["nfs"]}, {"volumes": [{"name": "a", "nfs": {}}, {"name": "b", "fc": {}}, {"name": "c", "hostPath": {}}]}, {["spec.volumes[1].fc", "fc"], ["spec.volumes[2].hostPath", "hostPath"]}],
		"claims and drivers": ["volumes", {"claims": ["cache"], "drivers": ["a.b"]}, {"volumes": [{"persistentVolumeClaim": {"claimName": "cache"}}, {"csi": {"driver": "a.b"}}, {"csi": {"driver": "c.d"}}]}, {["spec.volumes[2].csi.driver", "c.d"]}],
		"storage classes": ["volumes", {"storageClasses": ["fast"]}, {"volumes": [{"ephemeral": {"volumeClaimTemplate": {"metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "slow"}}, "spec": {"storageClassName": "fast"}}}}]}, {["spec.volumes[0].ephemeral.volumeClaimTemplate.metadata.annotations[volume.beta.kubernetes.io/storage-class]", "slow"]}],
		"memory": ["volumes", {}, {"containers": [{"resources": {"limits": {"memory": "1Gi"}}}], "volumes": [{"emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}, {"emptyDir": {"sizeLimit": "2Gi"}}]}, set()],
		"memory without end": ["volumes", {}, {"containers": [{"resources": {"limits": {"memory": "1Gi"}}}], "volumes": [{"name": "a", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}}, {"name": "b", "emptyDir": {"medium": "Memory"}}]}, {["spec.volumes[0].emptyDir.sizeLimit", "pod's"], ["spec.volumes[1].emptyDir.sizeLimit", "pod's"]}],
		"devices": ["extendedResources", {"allowed": ["nvidia.com/mig-*", "amd.com/gpu=1"], "claims": ["gpu"]}, {"resourceClaims": [{"resourceClaimName": "gpu"}], "containers": [{"resources": {"limits": {"cpu": "1", "nvidia.com/mig-1g": "7", "amd.com/gpu": "1"}}}]}, set()],
		"more devices": ["extendedResources", {"allowed": ["amd.com/gpu=1"]}, {"resourceClaims": [{"resourceClaimTemplateName": "gpu"}], "containers": [{"resources": {"limits": {"amd.com/gpu": "2"}}}]}, {["spec.containers[0].resources.limits[amd.com/gpu]", "amd.com/gpu=2"], ["spec.resourceClaims[0].resourceClaimTemplateName", "gpu"]}],
		"fields": ["fields", {"allowed": ["hostAliases", "dnsPolicy=None"]}, {"hostAliases": [{}], "dnsPolicy": "None", "shareProcessNamespace": false}, set()],
		"a pull policy of a volume": ["fields", {}, {"volumes": [{"image": {"reference": "a", "pullPolicy": "IfNotPresent"}}, {"image": {"reference": "a", "pullPolicy": "Never"}}]}, {["spec.volumes[1].image.pullPolicy", "pullPolicy=Never"]}],
		"other fields": ["fields", {"allowed": ["dnsPolicy=None"]}, {"dnsPolicy": "Default", "containers": [{"livenessProbe": {"exec": {}}}]}, {["spec.dnsPolicy", "dnsPolicy=Default"], ["spec.containers[0].livenessProbe.exec", "exec"]}],
	} {
		print(name)
		[family, rules, spec, denied] := case
		deny(family, rules, {"metadata": {"name": "linux-1"}, "spec": spec}) == denied
	}
}

test_labels_and_annotations if {
	metadata := {
		"labels": {"corral.dev/pool": "a", "team": "a", "cost": "cc-1", "Team": ""},
		"annotations": {"a.b/c": "d", "note": "x=y"},
	}
	deny("metadata", {"labels": ["team", "cost=cc-*"], "annotations": ["a.b/*", "note=y"]}, {"metadata": metadata, "spec": {}}) == {
		["metadata.labels.Team", "Team"], ["metadata.annotations.note", "note=x=y"],
	}
}

# stays are the messages for a pool with the given lifetime.
stays(lifetime, rules) := {finding.msg | some finding in found} if {
	found := template.deny with input as {"pool": {"namespace": "ci", "name": "web", "lifetime": lifetime}, "pod": {}} with data.library as {"persistent": rules}
}

test_runners_that_stay if {
	stays("Job", {}) == set()
	stays("Persistent", {}) == {"runners of pool ci/web stay"}
	stays("Persistent", {"allowed": ["ci/w*"]}) == set()
	stays("Persistent", {"allowed": ["web"]}) == {"runners of pool ci/web stay"}
}

test_host_paths_are_left_to_pod_security if {
	pod := {"spec": {"volumes": [{"name": "a", "hostPath": {"path": "/a"}}]}}
	rules := {"volumes": {}, "podSecurity": {"level": "privileged"}}
	count(template.deny) == 0 with input as {"pod": pod, "pool": {"trust": ""}} with data.library as rules
}

# Each case contains the parameters for caches, a cache, and the expected denials.
test_caches if {
	some_cache := {"storageClassName": "fast", "sizeBytes": 107374182400, "maxClaims": 4, "mountPath": "/cache", "timeToLiveSeconds": 60}
	pod := {"spec": {"volumes": [{"name": "corral-cache", "persistentVolumeClaim": {"claimName": "corral-cache-specimen"}}]}}
	every name, case in {
		"any of the class": [{"storageClasses": ["fa*"]}, some_cache, set()],
		"within bounds": [{"storageClasses": ["fast"], "caches": {"maxClaims": 4, "maxSize": "100Gi"}}, some_cache, set()],
		"the default class": [{}, object.union(some_cache, {"storageClassName": ""}), set()],
		"another class": [{}, some_cache, {"the cache has the storage class fast"}],
		"too many": [{"storageClasses": ["fast"], "caches": {"maxClaims": 3}}, some_cache, {"the cache has 4 claims, more than 3"}],
		"none at all": [{"storageClasses": ["fast"], "caches": {"maxClaims": 0}}, some_cache, {"the cache has 4 claims, more than 0"}],
		"too large": [{"storageClasses": ["fast"], "caches": {"maxSize": "99Gi"}}, some_cache, {"claims of the cache are larger than 99Gi"}],
	} {
		print(name)
		[rules, cache, denied] := case
		found := template.deny with input as {"pod": pod, "pool": {"cache": cache}} with data.library as {"volumes": rules}
		{finding.msg | some finding in found} == denied
	}
}
