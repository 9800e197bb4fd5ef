# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# scope: package
# title: Pod security
# description: >-
#  Data for the rules on Pod Security. Most pods do not set most fields: the fields that are set anywhere are determined
#  once, and a rule examines each container only if it can find a violation.
package corral.library.podsecurity

# level is the required level for the pool's pods.
level := special if {
	special := data.library.podSecurity.byTrust[input.pool.trust]
} else := data.library.podSecurity.level

restricted if level == "restricted"

kinds := ["containers", "initContainers"]

# distinct contains the distinct security contexts of all containers.
distinct := corral.distinct(input.pod.spec, "securityContext", {}) if checked

# with_pod also contains the security context of the pod.
with_pod := distinct | {pod_context}

checked if level != "privileged"

pod_context := object.get(input.pod.spec, "securityContext", {})

# lax is true if a container does not meet all requirements of the level restricted.
lax if {
	restricted
	some context in distinct
	not strict(context)
}

# lax_user is true if something may run as root.
lax_user if lax

lax_user if {
	restricted
	pod_context.runAsNonRoot == false
}

strict(context) if {
	context.allowPrivilegeEscalation == false
	"ALL" in context.capabilities.drop
	all := object.union(pod_context, context)
	all.runAsNonRoot
	all.seccompProfile
}

not_root := object.get(pod_context, "runAsNonRoot", false)

# containers contains all containers and init containers, as [path, container].
containers contains [sprintf("spec.%s[%d]", [kind, i]), container] if {
	some kind in kinds
	some i, container in input.pod.spec[kind]
}

# contexts contains all security contexts, as [path, whose, context].
contexts contains ["spec.securityContext", "the pod", input.pod.spec.securityContext]

contexts contains [sprintf("%s.securityContext", [path]), sprintf("container %s", [container.name]), container.securityContext] if {
	some [path, container] in containers
}

# unconfined is true if seccomp may be disabled somewhere.
unconfined if {
	type := with_pod[_].seccompProfile.type
	not type in profiles
}

# capabilities that containers may add.
capabilities := {"NET_BIND_SERVICE"} if restricted

capabilities := {
	"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE",
	"SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
} if {
	not restricted
}

# sysctls that are confined to the pod.
sysctls := {
	"kernel.shm_rmid_forced",
	"net.ipv4.ip_local_port_range",
	"net.ipv4.ip_local_reserved_ports",
	"net.ipv4.ip_unprivileged_port_start",
	"net.ipv4.ping_group_range",
	"net.ipv4.tcp_fin_timeout",
	"net.ipv4.tcp_keepalive_intvl",
	"net.ipv4.tcp_keepalive_probes",
	"net.ipv4.tcp_keepalive_time",
	"net.ipv4.tcp_notsent_lowat",
	"net.ipv4.tcp_rmem",
	"net.ipv4.tcp_slow_start_after_idle",
	"net.ipv4.tcp_syncookies",
	"net.ipv4.tcp_wmem",
}

# unusual contains the kinds of volumes that the level restricted does not allow. Host paths have their own rule.
unusual := object.keys(object.union_n(input.pod.spec.volumes)) - {
	"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "hostPath", "image", "name",
	"persistentVolumeClaim", "projected", "secret",
} if {
	restricted
}

selinux_types := {"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}

profiles := {"RuntimeDefault", "Localhost"}

# calling is true if a probe or hook makes the kubelet call another host.
calling if {
	checked
	container := input.pod.spec[["containers", "initContainers"][_]][_]
	probe := container[["livenessProbe", "readinessProbe", "startupProbe"][_]]
	probe[["httpGet", "tcpSocket"][_]].host != ""
}

calling if {
	checked
	hook := input.pod.spec[["containers", "initContainers"][_]][_].lifecycle[_]
	hook[["httpGet", "tcpSocket"][_]].host != ""
}

# handlers(container) contains its probes and hooks by field path.
handlers(container) := {
	"livenessProbe": object.get(container, "livenessProbe", {}),
	"readinessProbe": object.get(container, "readinessProbe", {}),
	"startupProbe": object.get(container, "startupProbe", {}),
	"lifecycle.postStart": object.get(container, ["lifecycle", "postStart"], {}),
	"lifecycle.preStop": object.get(container, ["lifecycle", "preStop"], {}),
}

# windows is true if the pod declares Windows. Kubernetes rejects fields of Linux for such pods.
windows if input.pod.spec.os.name == "windows"

# user_namespace is true if root in the pod is not root on the node.
user_namespace if input.pod.spec.hostUsers == false

# mountable(path) is true for a host path in or below data.library.podSecurity.hostPaths.
mountable(path) if {
	not ".." in split(path, "/")
	some allowed in data.library.podSecurity.hostPaths
	startswith(sprintf("%s/", [path]), sprintf("%s/", [trim_right(allowed, "/")]))
}

# unmasked is true if the pod may use an unmasked /proc.
unmasked if {
	user_namespace
	not restricted
}

# rootable contains what may run as root, as [path, whose].
rootable contains ["spec.securityContext.runAsNonRoot", "the pod"] if pod_context.runAsNonRoot == false

rootable contains [sprintf("%s.securityContext.runAsNonRoot", [path]), sprintf("container %s", [container.name])] if {
	lax
	some [path, container] in containers
	not object.get(container, ["securityContext", "runAsNonRoot"], not_root)
}
