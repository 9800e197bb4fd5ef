# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# scope: package
# title: Allow-lists
# description: >-
#  The pod fields that the families for shared clusters check, as lists of [fields, allowed] for corral.unlisted. Fields of pods
#  and containers that another family checks are in the list of usual fields.
package corral.library.allowed

names(family, parameter) := {name | some name in data.library[family][parameter]}

accounts := names("serviceAccounts", "allowed")

service_accounts := [
	[["serviceAccountName", "serviceAccount"], (accounts | {"", "default"})],
	[["volumes[*].projected.sources[*].serviceAccountToken.audience"], (names("serviceAccounts", "audiences") | {""})],
	[["volumes[*].projected.sources[*].podCertificate.signerName"], names("serviceAccounts", "signers")],
]

secrets := [[
	[
		"containers[*].env[*].valueFrom.secretKeyRef.name", "containers[*].envFrom[*].secretRef.name", "imagePullSecrets[*].name",
		"volumes[*].secret.secretName", "volumes[*].projected.sources[*].secret.name", "volumes[*].azureFile.secretName",
		"volumes[*].*.secretRef.name", "volumes[*].csi.nodePublishSecretRef.name",
		"volumes[*].csi.volumeAttributes.*secret*", "volumes[*].flexVolume.options.*secret*",
	],
	names("secrets", "allowed"),
]]

scheduling := [
	[["schedulerName"], (names("scheduling", "schedulers") | {"default-scheduler"})],
	[["priorityClassName"], names("scheduling", "priorityClasses")],
	[["runtimeClassName"], names("scheduling", "runtimeClasses")],
	[["nodeSelector.*"], node_labels],
	[["nodeName", "schedulingGates", "schedulingGroup", "evictionResponders"], []],
	[["affinity.*.*[*].namespaces", "affinity.*.*[*].podAffinityTerm.namespaces"], []],
	[["affinity.*.*[*].namespaceSelector", "affinity.*.*[*].podAffinityTerm.namespaceSelector"], []],
]

node_labels := names("scheduling", "nodeLabels") | {"kubernetes.io/arch", "kubernetes.io/os", "topology.kubernetes.io/*"}

topology_keys := [[
	[
		"affinity.*.*[*].topologyKey", "affinity.*.*[*].podAffinityTerm.topologyKey", "topologySpreadConstraints[*].topologyKey",
	],
	[],
]]

persistent := [[["pool"], names("persistent", "allowed")]]

taints := [[["*"], names("scheduling", "tolerations")]]

volumes := [
	[
		["volumes[*].*", "volumes[*].projected.sources[*].*", "volumes[*].ephemeral.*.spec.*", "containers[*].volumeDevices"],
		((names("volumes", "kinds") | {"hostPath" | data.library.podSecurity}) | {
			"name", "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected",
			"secret", "clusterTrustBundle", "podCertificate", "serviceAccountToken", "accessModes", "resources",
			"storageClassName", "volumeAttributesClassName", "volumeMode=Filesystem",
		}),
	],
	[["volumes[*].persistentVolumeClaim.claimName"], (names("volumes", "claims") | {"corral-cache-specimen"})],
	[["volumes[*].csi.driver", "volumes[*].flexVolume.driver"], names("volumes", "drivers")],
	[["volumes[*].ephemeral.*.spec.*classname*", "volumes[*].ephemeral.*.metadata.annotations.*storage-class*"], names("volumes", "storageClasses")],
]

caches := [[["storageClassName"], (names("volumes", "storageClasses") | {""})]]

extended_resources := [
	[["containers[*].resources.*.*", "resources.*.*"], (names("extendedResources", "allowed") | {"cpu", "memory", "ephemeral-storage"})],
	[["resourceClaims[*].resourceClaimName", "resourceClaims[*].resourceClaimTemplateName"], names("extendedResources", "claims")],
]

metadata := [
	[
		["metadata.labels.*", "spec.volumes[*].ephemeral.*.metadata.labels.*"],
		(names("metadata", "labels") | {"corral.dev/*", "app.kubernetes.io/*"}),
	],
	[
		["metadata.annotations.*", "spec.volumes[*].ephemeral.*.metadata.annotations.*"],
		(names("metadata", "annotations") | {"corral.dev/*", "cluster-autoscaler.kubernetes.io/safe-to-evict=true"}),
	],
]

more_fields := names("fields", "allowed")

fields := [
	[
		[
			"*", "securityContext.*", "securityContext.*options*.*",
			"containers[*].*", "containers[*].*probe*.*", "containers[*].securityContext.*", "containers[*].securityContext.*options*.*",
		],
		(more_fields | {field | some field in split(replace(usual, "\n", " "), " ")}),
	],
	[["volumes[*].image.*"], (more_fields | {"reference", "pullPolicy=Always", "pullPolicy=IfNotPresent"})],
]

# usual lists fields of pods, containers, probes and security contexts.
usual := `activeDeadlineSeconds affinity automountServiceAccountToken containers dnsPolicy=ClusterFirst enableServiceLinks
evictionResponders hostIPC hostNetwork hostPID hostUsers hostname imagePullSecrets initContainers nodeName nodeSelector os
priorityClassName readinessGates resourceClaims resources restartPolicy runtimeClassName schedulerName schedulingGates
schedulingGroup securityContext serviceAccount serviceAccountName subdomain terminationGracePeriodSeconds tolerations
topologySpreadConstraints volumes args command env envFrom image imagePullPolicy=Always imagePullPolicy=IfNotPresent
livenessProbe name ports readinessProbe resizePolicy startupProbe stdin stdinOnce terminationMessagePath
terminationMessagePolicy tty volumeDevices volumeMounts workingDir failureThreshold grpc httpGet initialDelaySeconds
periodSeconds successThreshold tcpSocket timeoutSeconds allowPrivilegeEscalation appArmorProfile capabilities fsGroup
fsGroupChangePolicy hostProcess privileged procMount readOnlyRootFilesystem role runAsGroup runAsNonRoot runAsUser
runAsUserName seLinuxChangePolicy seLinuxOptions seccompProfile supplementalGroupsPolicy sysctls type user windowsOptions`
