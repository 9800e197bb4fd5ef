# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.template

import data.corral.library.allowed

# METADATA
# scope: rule
# title: Volumes within bounds
# description: >-
#  Volumes and sources of projected volumes must be of a safe kind or one of data.library.volumes.kinds. Claims must be in
#  its list claims, and drivers in its list drivers. Ephemeral volumes must be new and empty, must not be raw devices, and
#  must have the default storage class or one of storageClasses.
# custom:
#  code: CORRAL-VOL-001
#  family: volumes
#  severity: high
#  remediation: use an emptyDir or an ephemeral volume, or add the name to library.volumes
#  only_with: [volumes, volumeDevices]
deny contains {"msg": sprintf("the pod has a volume of %s", [name]), "path": sprintf("spec.%s", [path])} if {
	data.library.volumes
	some [path, name] in corral.unlisted(input.pod.spec, allowed.volumes)
}

# METADATA
# scope: rule
# title: Memory with a size
# description: >-
#  A volume in memory must have a size above 0 that does not exceed the memory of the pod.
# custom:
#  code: CORRAL-VOL-002
#  family: volumes
#  severity: medium
#  remediation: set emptyDir.sizeLimit, and limits for memory
#  only_with: [medium]
deny contains {"msg": sprintf("volume %s is memory without a size within the pod's", [volume.name]), "path": sprintf("spec.volumes[%d].emptyDir.sizeLimit", [i])} if {
	data.library.volumes
	some i, volume in input.pod.spec.volumes
	volume.emptyDir.medium != ""
	size := corral.quantity(object.get(volume.emptyDir, "sizeLimit", 0))
	memory := object.get(corral.pod_resources(input.pod.spec), "memory", 0)
	count([size | size > 0; size <= memory]) == 0
}

# METADATA
# scope: rule
# title: Caches within bounds
# description: >-
#  A pool's cache must have the default storage class or one of data.library.volumes.storageClasses, and must not exceed the number
#  and the size of claims in data.library.volumes.caches.
# custom:
#  code: CORRAL-VOL-003
#  family: volumes
#  severity: medium
#  remediation: lower spec.cache.maxClaims or spec.cache.size, or add its class to library.volumes
#  only_with: [persistentVolumeClaim]
deny contains {"msg": msg, "path": "spec.volumes"} if {
	data.library.volumes
	some msg in cache_faults
}

cache_faults contains sprintf("the cache has the storage class %s", [name]) if {
	some [_, name] in corral.unlisted(input.pool.cache, allowed.caches)
}

cache_faults contains sprintf("the cache has %d claims, more than %d", [input.pool.cache.maxClaims, most]) if {
	most := data.library.volumes.caches.maxClaims
	input.pool.cache.maxClaims > most
}

cache_faults contains sprintf("claims of the cache are larger than %v", [most]) if {
	most := data.library.volumes.caches.maxSize
	input.pool.cache.sizeBytes * 1000 > corral.quantity(most)
}
