# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.template

import data.corral.library.podsecurity as pss

# The rules of the Kubernetes Pod Security Standards, as of Kubernetes 1.37:
# https://kubernetes.io/docs/concepts/security/pod-security-standards
# Rules with codes from 100 apply only to the level restricted.

# METADATA
# scope: rule
# title: No Windows host process
# description: >-
#  Baseline: windowsOptions.hostProcess gives a Windows container the rights of its node.
# custom:
#  code: CORRAL-PSS-001
#  family: podSecurity
#  only_with: [hostProcess]
deny contains {
	"msg": sprintf("%s is a process of its Windows host", [who]),
	"path": sprintf("%s.windowsOptions.hostProcess", [path]),
	"code": "CORRAL-PSS-001",
	"severity": "high",
	"remediation": "remove windowsOptions.hostProcess",
} if {
	pss.with_pod[_].windowsOptions.hostProcess
	some [path, who, context] in pss.contexts
	context.windowsOptions.hostProcess
}

# METADATA
# scope: rule
# title: No namespaces of the host
# description: >-
#  Baseline: hostNetwork, hostPID and hostIPC let a pod access other processes and services of its node.
# custom:
#  code: CORRAL-PSS-002
#  family: podSecurity
#  only_with: [hostNetwork, hostPID, hostIPC]
deny contains {
	"msg": sprintf("the pod uses the namespace of its node: %s", [field]),
	"path": sprintf("spec.%s", [field]),
	"code": "CORRAL-PSS-002",
	"severity": "high",
	"remediation": sprintf("remove %s", [field]),
} if {
	some field in ["hostNetwork", "hostPID", "hostIPC"]
	input.pod.spec[field]
	pss.checked
}

# METADATA
# scope: rule
# title: No privileged containers
# description: >-
#  Baseline: a privileged container has root access to its node.
# custom:
#  code: CORRAL-PSS-003
#  family: podSecurity
#  only_with: [privileged]
deny contains {
	"msg": sprintf("container %s is privileged", [container.name]),
	"path": sprintf("%s.securityContext.privileged", [path]),
	"code": "CORRAL-PSS-003",
	"severity": "high",
	"remediation": "remove privileged: to build images, use a builder that runs without, such as rootless BuildKit or Kaniko",
} if {
	pss.distinct[_].privileged
	some [path, container] in pss.containers
	container.securityContext.privileged
}

# METADATA
# scope: rule
# title: Capabilities within bounds
# description: >-
#  Baseline: capabilities beyond the defaults of container runtimes must not be added. Restricted: only NET_BIND_SERVICE
#  can be added.
# custom:
#  code: CORRAL-PSS-004
#  family: podSecurity
#  only_with: [add]
deny contains {
	"msg": sprintf("container %s adds the capability %s", [container.name, capability]),
	"path": sprintf("%s.securityContext.capabilities.add", [path]),
	"code": "CORRAL-PSS-004",
	"severity": "high",
	"remediation": sprintf("remove %s from capabilities.add", [capability]),
} if {
	pss.distinct[_].capabilities.add[_]
	some [path, container] in pss.containers
	some capability in container.securityContext.capabilities.add
	not capability in pss.capabilities
}

# METADATA
# scope: rule
# title: No host paths
# description: >-
#  Baseline: hostPath volumes must not be used, because they give access to the node, except in and below
#  data.library.podSecurity.hostPaths. A path with .. in it is never allowed.
# custom:
#  code: CORRAL-PSS-005
#  family: podSecurity
#  only_with: [hostPath]
deny contains {
	"msg": sprintf("volume %s is the path %s of the node", [volume.name, path]),
	"path": sprintf("spec.volumes[%d].hostPath.path", [i]),
	"code": "CORRAL-PSS-005",
	"severity": "high",
	"remediation": "use an emptyDir, a volume claim or an ephemeral volume",
} if {
	some i, volume in input.pod.spec.volumes
	path := volume.hostPath.path
	pss.checked
	not pss.mountable(path)
}

# METADATA
# scope: rule
# title: No host ports
# description: >-
#  Baseline: a host port opens a port of the node.
# custom:
#  code: CORRAL-PSS-006
#  family: podSecurity
#  only_with: [hostPort]
deny contains {
	"msg": sprintf("container %s opens port %d of the node", [container.name, port.hostPort]),
	"path": sprintf("%s.ports[%d].hostPort", [path, i]),
	"code": "CORRAL-PSS-006",
	"severity": "medium",
	"remediation": "remove hostPort",
} if {
	input.pod.spec[["containers", "initContainers"][_]][_].ports[_].hostPort != 0
	pss.checked
	some [path, container] in pss.containers
	some i, port in container.ports
	port.hostPort != 0
}

# METADATA
# scope: rule
# title: No other hosts in probes and lifecycle hooks
# description: >-
#  Baseline: host must not be set, because a probe or a lifecycle hook with it makes the kubelet call another machine.
# custom:
#  code: CORRAL-PSS-007
#  family: podSecurity
#  only_with: [host]
deny contains {
	"msg": sprintf("container %s has the kubelet call %s", [container.name, host]),
	"path": sprintf("%s.%s.%s.host", [path, field, call]),
	"code": "CORRAL-PSS-007",
	"severity": "medium",
	"remediation": "remove host: without it the pod itself is called",
} if {
	pss.calling
	some [path, container] in pss.containers
	some field, handler in pss.handlers(container)
	some call in ["httpGet", "tcpSocket"]
	host := handler[call].host
	host != ""
}

# METADATA
# scope: rule
# title: AppArmor profiles within bounds
# description: >-
#  Baseline: a pod or container must not disable its AppArmor profile.
# custom:
#  code: CORRAL-PSS-008
#  family: podSecurity
#  only_with: [appArmorProfile]
deny contains {
	"msg": sprintf("%s has the AppArmor profile %s", [who, profile]),
	"path": sprintf("%s.appArmorProfile.type", [path]),
	"code": "CORRAL-PSS-008",
	"severity": "medium",
	"remediation": "use RuntimeDefault or Localhost, or remove appArmorProfile",
} if {
	pss.with_pod[_].appArmorProfile
	some [path, who, context] in pss.contexts
	profile := object.get(context.appArmorProfile, "type", "")
	not profile in pss.profiles
}

# METADATA
# scope: rule
# title: AppArmor annotations within bounds
# description: >-
#  Baseline: the old annotation that selects an AppArmor profile must not disable AppArmor.
# custom:
#  code: CORRAL-PSS-009
#  family: podSecurity
#  only_with: [container.apparmor.security.beta.kubernetes.io/]
deny contains {
	"msg": sprintf("the annotation %s chooses the AppArmor profile %s", [key, profile]),
	"path": sprintf("metadata.annotations[%s]", [key]),
	"code": "CORRAL-PSS-009",
	"severity": "medium",
	"remediation": "remove the annotation, or use runtime/default or localhost/NAME",
} if {
	some key, profile in input.pod.metadata.annotations
	startswith(key, "container.apparmor.security.beta.kubernetes.io/")
	pss.checked
	not profile in {"", "runtime/default"}
	not startswith(profile, "localhost/")
}

# METADATA
# scope: rule
# title: SELinux types within bounds
# description: >-
#  Baseline: the SELinux type must be one for containers.
# custom:
#  code: CORRAL-PSS-010
#  family: podSecurity
#  only_with: [seLinuxOptions]
deny contains {
	"msg": sprintf("%s has the SELinux type %s", [who, type]),
	"path": sprintf("%s.seLinuxOptions.type", [path]),
	"code": "CORRAL-PSS-010",
	"severity": "medium",
	"remediation": "use container_t, container_init_t, container_kvm_t or container_engine_t, or remove the type",
} if {
	pss.with_pod[_].seLinuxOptions
	some [path, who, context] in pss.contexts
	type := context.seLinuxOptions.type
	not type in pss.selinux_types
}

# METADATA
# scope: rule
# title: No SELinux users or roles
# description: >-
#  Baseline: the SELinux user and role must not be set.
# custom:
#  code: CORRAL-PSS-011
#  family: podSecurity
#  only_with: [seLinuxOptions]
deny contains {
	"msg": sprintf("%s sets the SELinux %s %s", [who, field, context.seLinuxOptions[field]]),
	"path": sprintf("%s.seLinuxOptions.%s", [path, field]),
	"code": "CORRAL-PSS-011",
	"severity": "medium",
	"remediation": sprintf("remove seLinuxOptions.%s", [field]),
} if {
	pss.with_pod[_].seLinuxOptions
	some [path, who, context] in pss.contexts
	some field in ["user", "role"]
	context.seLinuxOptions[field] != ""
}

# METADATA
# scope: rule
# title: The usual view of /proc
# description: >-
#  Baseline: procMount must be Default, except with hostUsers: false. Restricted: procMount must always be Default.
# custom:
#  code: CORRAL-PSS-012
#  family: podSecurity
#  only_with: [procMount]
deny contains {
	"msg": sprintf("container %s has /proc mounted %s", [container.name, container.securityContext.procMount]),
	"path": sprintf("%s.securityContext.procMount", [path]),
	"code": "CORRAL-PSS-012",
	"severity": "medium",
	"remediation": "remove procMount",
} if {
	pss.distinct[_].procMount != "Default"
	not pss.unmasked
	some [path, container] in pss.containers
	container.securityContext.procMount != "Default"
}

# METADATA
# scope: rule
# title: Seccomp profiles within bounds
# description: >-
#  Baseline: seccomp must not be disabled.
# custom:
#  code: CORRAL-PSS-013
#  family: podSecurity
deny contains {
	"msg": sprintf("%s has the seccomp profile %s", [who, profile]),
	"path": sprintf("%s.seccompProfile.type", [path]),
	"code": "CORRAL-PSS-013",
	"severity": "medium",
	"remediation": "use RuntimeDefault or Localhost",
} if {
	pss.unconfined
	some [path, who, context] in pss.contexts
	profile := context.seccompProfile.type
	not profile in pss.profiles
}

# METADATA
# scope: rule
# title: Sysctls within bounds
# description: >-
#  Baseline: only sysctls that are confined to the pod may be set.
# custom:
#  code: CORRAL-PSS-014
#  family: podSecurity
#  only_with: [sysctls]
deny contains {
	"msg": sprintf("the pod sets the sysctl %s", [sysctl.name]),
	"path": sprintf("spec.securityContext.sysctls[%d].name", [i]),
	"code": "CORRAL-PSS-014",
	"severity": "medium",
	"remediation": sprintf("remove the sysctl, or use one of %s", [concat(", ", pss.sysctls)]),
} if {
	some i, sysctl in input.pod.spec.securityContext.sysctls
	pss.checked
	not sysctl.name in pss.sysctls
}

# METADATA
# scope: rule
# title: One value in each sysctl
# description: >-
#  Baseline: the value of a sysctl must not have +, = or white space that could set another one (CVE-2022-0811). Numbers may
#  be separated by one space or tab.
# custom:
#  code: CORRAL-PSS-015
#  family: podSecurity
#  only_with: [sysctls]
deny contains {
	"msg": sprintf("the value of the sysctl %s could set another one: %s", [sysctl.name, json.marshal(sysctl.value)]),
	"path": sprintf("spec.securityContext.sysctls[%d].value", [i]),
	"code": "CORRAL-PSS-015",
	"severity": "high",
	"remediation": "use one value, or numbers separated by one space",
} if {
	some i, sysctl in input.pod.spec.securityContext.sysctls
	pss.checked
	not regex.match(`^[^+=\s]*([ \t][0-9]+)*$`, object.get(sysctl, "value", ""))
}

# METADATA
# scope: rule
# title: Volumes of harmless kinds only
# description: >-
#  Restricted: volumes must be of the kinds configMap, csi, downwardAPI, emptyDir, ephemeral, image,
#  persistentVolumeClaim, projected or secret; host paths as for baseline.
# custom:
#  code: CORRAL-PSS-101
#  family: podSecurity
deny contains {
	"msg": sprintf("volume %s is of the kind %s", [volume.name, kind]),
	"path": sprintf("spec.volumes[%d].%s", [i, kind]),
	"code": "CORRAL-PSS-101",
	"severity": "medium",
	"remediation": "use a volume claim, an ephemeral volume or an emptyDir",
} if {
	some kind in pss.unusual
	some i, volume in input.pod.spec.volumes
	volume[kind]
}

# METADATA
# scope: rule
# title: No escalation of privileges
# description: >-
#  Restricted: allowPrivilegeEscalation must be false, so that no program in the container gains privileges. Windows pods
#  are exempt.
# custom:
#  code: CORRAL-PSS-102
#  family: podSecurity
deny contains {
	"msg": sprintf("container %s may gain privileges", [container.name]),
	"path": sprintf("%s.securityContext.allowPrivilegeEscalation", [path]),
	"code": "CORRAL-PSS-102",
	"severity": "medium",
	"remediation": "set allowPrivilegeEscalation: false",
} if {
	pss.lax
	not pss.windows
	some [path, container] in pss.containers
	not container.securityContext.allowPrivilegeEscalation == false
}

# METADATA
# scope: rule
# title: Not as root
# description: >-
#  Restricted: runAsNonRoot must be true for the pod or for each container, and must not be false anywhere. Pods with
#  hostUsers: false are exempt.
# custom:
#  code: CORRAL-PSS-103
#  family: podSecurity
deny contains {
	"msg": sprintf("%s may run as root", [who]),
	"path": path,
	"code": "CORRAL-PSS-103",
	"severity": "medium",
	"remediation": "set runAsNonRoot: true, and a runAsUser if the image names none by number",
} if {
	pss.lax_user
	not pss.user_namespace
	some [path, who] in pss.rootable
}

# METADATA
# scope: rule
# title: Not as user 0
# description: >-
#  Restricted: runAsUser must not be 0. Pods with hostUsers: false are exempt.
# custom:
#  code: CORRAL-PSS-104
#  family: podSecurity
#  only_with: [runAsUser]
deny contains {
	"msg": sprintf("%s runs as user 0", [who]),
	"path": sprintf("%s.runAsUser", [path]),
	"code": "CORRAL-PSS-104",
	"severity": "medium",
	"remediation": "use another runAsUser: the runner image of GitHub has 1001",
} if {
	pss.restricted
	pss.with_pod[_].runAsUser == 0
	not pss.user_namespace
	some [path, who, context] in pss.contexts
	context.runAsUser == 0
}

# METADATA
# scope: rule
# title: A seccomp profile
# description: >-
#  Restricted: the pod, or each container, must have a seccomp profile. Windows pods are exempt.
# custom:
#  code: CORRAL-PSS-105
#  family: podSecurity
deny contains {
	"msg": sprintf("container %s has no seccomp profile", [container.name]),
	"path": sprintf("%s.securityContext.seccompProfile", [path]),
	"code": "CORRAL-PSS-105",
	"severity": "medium",
	"remediation": "set seccompProfile.type: RuntimeDefault, best for the whole pod",
} if {
	pss.lax
	not pss.windows
	not pss.pod_context.seccompProfile
	some [path, container] in pss.containers
	not container.securityContext.seccompProfile
}

# METADATA
# scope: rule
# title: All capabilities dropped
# description: >-
#  Restricted: each container must drop ALL capabilities. Windows pods are exempt.
# custom:
#  code: CORRAL-PSS-106
#  family: podSecurity
deny contains {
	"msg": sprintf("container %s does not drop all capabilities", [container.name]),
	"path": sprintf("%s.securityContext.capabilities.drop", [path]),
	"code": "CORRAL-PSS-106",
	"severity": "medium",
	"remediation": "set capabilities.drop: [ALL]",
} if {
	pss.lax
	not pss.windows
	some [path, container] in pss.containers
	not "ALL" in object.get(container, ["securityContext", "capabilities", "drop"], [])
}
