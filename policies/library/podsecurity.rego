# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# scope: package
# title: Pod security
# description: >-
#  What rules on Pod Security ask of a pod. Most pods don't set most fields: what is set anywhere is found
#  out once, and a rule looks at each container only if there can be something to find.
package corral.library.podsecurity

# level that the pool's pods must keep.
level := special if {
	special := data.library.podSecurity.byTrust[input.pool.trust]
} else := data.library.podSecurity.level

restricted if level == "restricted"

kinds := ["containers", "initContainers"]

# distinct are the different security contexts of all containers.
distinct := corral.distinct(input.pod.spec, "securityContext", {}) if checked

# with_pod has that of the pod too.
with_pod := distinct | {pod_context}

checked if level != "privileged"

pod_context := object.get(input.pod.spec, "securityContext", {})

# lax holds if a container doesn't do all that the level restricted asks for.
lax if {
	restricted
	some context in distinct
	not strict(context)
}

# lax_user holds if it may be that something runs as root.
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

# containers are all of them, as [path, container].
containers contains [sprintf("spec.%s[%d]", [kind, i]), container] if {
	some kind in kinds
	some i, container in input.pod.spec[kind]
}

# contexts are all security contexts, as [path, whose, context].
contexts contains ["spec.securityContext", "the pod", input.pod.spec.securityContext]

contexts contains [sprintf("%s.securityContext", [path]), sprintf("container %s", [container.name]), container.securityContext] if {
	some [path, container] in containers
}

# unconfined holds if seccomp may be switched off somewhere.
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

# unusual are the kinds of volumes that the level restricted doesn't allow. Host paths have a rule of their own.
unusual := object.keys(object.union_n(input.pod.spec.volumes)) - {
	"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "hostPath", "image", "name",
	"persistentVolumeClaim", "projected", "secret",
} if {
	restricted
}

selinux_types := {"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"}

profiles := {"RuntimeDefault", "Localhost"}

# calling holds if a probe or hook has the kubelet call a host.
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

# handlers(container) are its probes and hooks by the path of their field.
handlers(container) := {
	"livenessProbe": object.get(container, "livenessProbe", {}),
	"readinessProbe": object.get(container, "readinessProbe", {}),
	"startupProbe": object.get(container, "startupProbe", {}),
	"lifecycle.postStart": object.get(container, ["lifecycle", "postStart"], {}),
	"lifecycle.preStop": object.get(container, ["lifecycle", "preStop"], {}),
}

# windows holds for a pod that says so. What makes no sense there can't be set there.
windows if input.pod.spec.os.name == "windows"

# user_namespace holds if root in the pod isn't root of its node.
user_namespace if input.pod.spec.hostUsers == false

# mountable(path) holds for a path of the node in or below data.library.podSecurity.hostPaths.
mountable(path) if {
	not ".." in split(path, "/")
	some allowed in data.library.podSecurity.hostPaths
	startswith(sprintf("%s/", [path]), sprintf("%s/", [trim_right(allowed, "/")]))
}

# unmasked holds for a pod that may see /proc as it is.
unmasked if {
	user_namespace
	not restricted
}

# rootable are what may run as root, as [path, whose].
rootable contains ["spec.securityContext.runAsNonRoot", "the pod"] if pod_context.runAsNonRoot == false

rootable contains [sprintf("%s.securityContext.runAsNonRoot", [path]), sprintf("container %s", [container.name])] if {
	lax
	some [path, container] in containers
	not object.get(container, ["securityContext", "runAsNonRoot"], not_root)
}
