# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.template_podsecurity_test

import data.corral.template

context := {
	"allowPrivilegeEscalation": false,
	"capabilities": {"drop": ["ALL"]},
	"runAsNonRoot": true,
	"seccompProfile": {"type": "RuntimeDefault"},
}

# good complies with the level restricted. Container 0 sets everything itself, init container 0 inherits as much as possible.
good := {
	"metadata": {"annotations": {}},
	"spec": {
		"securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
		"initContainers": [{
			"name": "init",
			"securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
		}],
		"containers": [{"name": "runner", "securityContext": context}],
		"volumes": [{"name": "work", "emptyDir": {}}],
	},
}

# deny(level, patches) are the codes and paths of the denials for the good pod with patches.
deny(level, patches) := {[finding.code, finding.path] | some finding in found} if {
	found := template.deny with input as {"pool": {"trust": ""}, "pod": json.patch(good, patches)}
		with data.library as {"podSecurity": {"level": level, "hostPaths": ["/var/cache/ci/", "/opt/tools"]}}
}

# add(path, value) is a patch. In a path, $C is container 0, $I is init container 0.
add(path, value) := {"op": "add", "path": full(path), "value": value}

without(path) := {"op": "remove", "path": full(path)}

full(path) := replace(replace(path, "$C", "/spec/containers/0"), "$I", "/spec/initContainers/0")

test_good_pods_are_allowed if {
	every level in ["privileged", "baseline", "restricted"] {
		deny(level, []) == set()
	}
}

test_off if count(template.deny) == 0 with input as {"pod": {"spec": {"hostNetwork": true}}} with data.library as {}

# Pods that baseline allows although they look similar to denied ones.
test_baseline_allows if {
	every name, patches in {
		"no security contexts": [without("/spec/securityContext"), without("$C/securityContext"), without("$I/securityContext")],
		"no init containers": [without("/spec/initContainers")],
		"no volumes": [without("/spec/volumes")],
		"false host namespaces": [add("/spec/hostNetwork", false), add("/spec/hostPID", false), add("/spec/hostIPC", false)],
		"no host process": [add("$C/securityContext/windowsOptions", {"hostProcess": false})],
		"not privileged": [add("$C/securityContext/privileged", false)],
		"usual capabilities": [add("$C/securityContext/capabilities/add", ["CHOWN", "NET_BIND_SERVICE", "SYS_CHROOT"])],
		"an allowed host path": [add("/spec/volumes/1", {"name": "x", "hostPath": {"path": "/var/cache/ci"}})],
		"what is below": [add("/spec/volumes/1", {"name": "x", "hostPath": {"path": "/opt/tools/go/1.25"}})],
		"a path with dots": [add("/spec/volumes/1", {"name": "x", "hostPath": {"path": "/opt/tools/..data/x..y"}})],
		"container ports": [add("$C/ports", [{"containerPort": 80}, {"containerPort": 81, "hostPort": 0}])],
		"probes of itself": [add("$C/livenessProbe", {"httpGet": {"port": 80, "host": ""}})],
		"hooks of itself": [add("$C/lifecycle", {"preStop": {"exec": {"command": ["x"]}}})],
		"AppArmor": [add("$C/securityContext/appArmorProfile", {"type": "Localhost", "localhostProfile": "x"})],
		"AppArmor by annotation": [
			add("/metadata/annotations/container.apparmor.security.beta.kubernetes.io~1runner", "localhost/x"),
			add("/metadata/annotations/container.apparmor.security.beta.kubernetes.io~1init", "runtime/default"),
		],
		"SELinux": [add("$C/securityContext/seLinuxOptions", {"type": "container_kvm_t", "user": "", "level": "s0"})],
		"procMount": [add("$C/securityContext/procMount", "Default")],
		"all of /proc in a user namespace": [add("$C/securityContext/procMount", "Unmasked"), add("/spec/hostUsers", false)],
		"seccomp": [add("$C/securityContext/seccompProfile", {"type": "Localhost"})],
		"no seccomp": [without("/spec/securityContext"), without("$C/securityContext/seccompProfile")],
		"sysctls": [add("/spec/securityContext/sysctls", [{"name": "net.ipv4.tcp_syncookies", "value": "1"}])],
		"root": [add("/spec/securityContext/runAsUser", 0), add("$C/securityContext/runAsNonRoot", false)],
		"a pod of root": [add("/spec/securityContext/runAsNonRoot", false)],
		"other annotations": [add("/metadata/annotations/acme.example~1profile", "unconfined")],
		"NFS": [add("/spec/volumes/1", {"name": "x", "nfs": {"server": "x", "path": "/"}})],
	} {
		print(name)
		deny("baseline", patches) == set()
	}
}

# Pods that both baseline and restricted deny.
denied := [
	["001", "spec.securityContext.windowsOptions.hostProcess", [add("/spec/securityContext/windowsOptions", {"hostProcess": true})]],
	["001", "spec.containers[0].securityContext.windowsOptions.hostProcess", [add("$C/securityContext/windowsOptions", {"hostProcess": true})]],
	["002", "spec.hostNetwork", [add("/spec/hostNetwork", true)]],
	["002", "spec.hostPID", [add("/spec/hostPID", true)]],
	["002", "spec.hostIPC", [add("/spec/hostIPC", true)]],
	["003", "spec.containers[0].securityContext.privileged", [add("$C/securityContext/privileged", true)]],
	["003", "spec.initContainers[0].securityContext.privileged", [add("$I/securityContext/privileged", true)]],
	["004", "spec.containers[0].securityContext.capabilities.add", [add("$C/securityContext/capabilities/add", ["NET_BIND_SERVICE", "NET_RAW"])]],
	["004", "spec.initContainers[0].securityContext.capabilities.add", [add("$I/securityContext/capabilities/add", ["SYS_ADMIN"])]],
	["005", "spec.volumes[1].hostPath.path", [add("/spec/volumes/1", {"name": "x", "hostPath": {"path": "/var/run/docker.sock"}})]],
	["005", "spec.volumes[1].hostPath.path", [add("/spec/volumes/1", {"name": "x", "hostPath": {"path": "/opt/tools-evil"}})]],
	["005", "spec.volumes[1].hostPath.path", [add("/spec/volumes/1", {"name": "x", "hostPath": {"path": "/opt/tools/../../etc"}})]],
	["005", "spec.volumes[1].hostPath.path", [add("/spec/volumes/1", {"name": "x", "hostPath": {"path": "/opt"}})]],
	["006", "spec.containers[0].ports[1].hostPort", [add("$C/ports", [{"hostPort": 0}, {"hostPort": 81}])]],
	["006", "spec.initContainers[0].ports[0].hostPort", [add("$I/ports", [{"containerPort": 81, "hostPort": 81}])]],
	["007", "spec.containers[0].livenessProbe.httpGet.host", [
		add("$C/livenessProbe", {"httpGet": {"host": "169.254.169.254"}}),
		add("$C/startupProbe", {"httpGet": {"host": ""}}),
	]],
	["007", "spec.containers[0].readinessProbe.tcpSocket.host", [add("$C/readinessProbe", {"tcpSocket": {"host": "x"}})]],
	["007", "spec.initContainers[0].startupProbe.httpGet.host", [add("$I/startupProbe", {"httpGet": {"host": "x"}})]],
	["007", "spec.initContainers[0].lifecycle.preStop.httpGet.host", [add("$I/lifecycle", {"preStop": {"httpGet": {"host": "x"}}})]],
	["007", "spec.containers[0].lifecycle.postStart.httpGet.host", [add("$C/lifecycle", {"postStart": {"httpGet": {"host": "x"}}})]],
	["007", "spec.containers[0].lifecycle.preStop.tcpSocket.host", [add("$C/lifecycle", {"preStop": {"tcpSocket": {"host": "x"}}})]],
	["008", "spec.securityContext.appArmorProfile.type", [add("/spec/securityContext/appArmorProfile", {"type": "Unconfined"})]],
	["008", "spec.containers[0].securityContext.appArmorProfile.type", [add("$C/securityContext/appArmorProfile", {"type": "Unconfined"})]],
	[
		"009", "metadata.annotations[container.apparmor.security.beta.kubernetes.io/runner]",
		[add("/metadata/annotations/container.apparmor.security.beta.kubernetes.io~1runner", "unconfined")],
	],
	["010", "spec.containers[0].securityContext.seLinuxOptions.type", [add("$C/securityContext/seLinuxOptions", {"type": "spc_t"})]],
	["010", "spec.securityContext.seLinuxOptions.type", [add("/spec/securityContext/seLinuxOptions", {"type": "unconfined_t"})]],
	["011", "spec.containers[0].securityContext.seLinuxOptions.user", [add("$C/securityContext/seLinuxOptions", {"user": "system_u"})]],
	["011", "spec.securityContext.seLinuxOptions.role", [add("/spec/securityContext/seLinuxOptions", {"role": "x", "type": ""})]],
	["012", "spec.containers[0].securityContext.procMount", [
		add("$C/securityContext/procMount", "Unmasked"),
		add("$I/securityContext/procMount", "Default"),
	]],
	["013", "spec.containers[0].securityContext.seccompProfile.type", [add("$C/securityContext/seccompProfile", {"type": "Unconfined"})]],
	["013", "spec.securityContext.seccompProfile.type", [add("/spec/securityContext/seccompProfile", {"type": "Unconfined"})]],
	["014", "spec.securityContext.sysctls[1].name", [add("/spec/securityContext/sysctls", [{"name": "kernel.shm_rmid_forced"}, {"name": "kernel.msgmax"}])]],
]

test_baseline_denies if {
	every case in denied {
		[code, path, patches] := case
		print(case)
		want := {[sprintf("CORRAL-PSS-%s", [code]), path]}
		deny("baseline", patches) == want
		deny("restricted", patches) == want
		deny("privileged", patches) == set()
	}
}

test_restricted_allows if {
	every name, patches in {
		"no init containers": [without("/spec/initContainers")],
		"nothing from the pod": [without("/spec/securityContext"), add("$I/securityContext", context)],
		"all that can be from the pod": [add("$C/securityContext", good.spec.initContainers[0].securityContext)],
		"ports below 1024": [add("$C/securityContext/capabilities/add", ["NET_BIND_SERVICE"])],
		"a user": [add("$C/securityContext/runAsUser", 1001), add("/spec/securityContext/runAsUser", 1)],
		"more capabilities dropped": [add("$C/securityContext/capabilities/drop", ["KILL", "ALL"])],
		"an allowed host path": [add("/spec/volumes/1", {"name": "x", "hostPath": {"path": "/opt/tools/x"}})],
		"volumes": [add("/spec/volumes", [
			{"name": "a", "configMap": {}}, {"name": "b", "csi": {}}, {"name": "c", "downwardAPI": {}},
			{"name": "d", "ephemeral": {}}, {"name": "e", "image": {}}, {"name": "f", "persistentVolumeClaim": {}},
			{"name": "g", "projected": {}}, {"name": "h", "secret": {}},
		])],
		"root in a user namespace": [
			add("/spec/hostUsers", false),
			add("/spec/securityContext/runAsNonRoot", false),
			add("$C/securityContext/runAsUser", 0),
		],
		"Windows": [
			add("/spec/os", {"name": "windows"}),
			add("/spec/securityContext", {"runAsNonRoot": true}),
			add("$C/securityContext", {}),
			without("$I/securityContext"),
		],
	} {
		print(name)
		deny("restricted", patches) == set()
	}
}

test_restricted_denies if {
	every case in [
		["004", "spec.containers[0].securityContext.capabilities.add", [add("$C/securityContext/capabilities/add", ["NET_BIND_SERVICE", "CHOWN"])]],
		["012", "spec.containers[0].securityContext.procMount", [add("$C/securityContext/procMount", "Unmasked"), add("/spec/hostUsers", false)]],
		["101", "spec.volumes[1].nfs", [add("/spec/volumes/1", {"name": "x", "nfs": {"server": "x", "path": "/"}})]],
		["101", "spec.volumes[1].somethingNew", [add("/spec/volumes/1", {"name": "x", "somethingNew": {}})]],
		["102", "spec.containers[0].securityContext.allowPrivilegeEscalation", [without("$C/securityContext/allowPrivilegeEscalation")]],
		["102", "spec.initContainers[0].securityContext.allowPrivilegeEscalation", [add("$I/securityContext/allowPrivilegeEscalation", true)]],
		["103", "spec.containers[0].securityContext.runAsNonRoot", [add("$C/securityContext/runAsNonRoot", false)]],
		["103", "spec.initContainers[0].securityContext.runAsNonRoot", [without("/spec/securityContext/runAsNonRoot")]],
		["103", "spec.securityContext.runAsNonRoot", [
			add("/spec/securityContext/runAsNonRoot", false),
			add("$I/securityContext/runAsNonRoot", true),
		]],
		["104", "spec.containers[0].securityContext.runAsUser", [add("$C/securityContext/runAsUser", 0)]],
		["104", "spec.securityContext.runAsUser", [add("/spec/securityContext/runAsUser", 0)]],
		["105", "spec.initContainers[0].securityContext.seccompProfile", [without("/spec/securityContext/seccompProfile")]],
		["106", "spec.containers[0].securityContext.capabilities.drop", [without("$C/securityContext/capabilities")]],
		["106", "spec.initContainers[0].securityContext.capabilities.drop", [add("$I/securityContext/capabilities/drop", ["KILL"])]],
	] {
		[code, path, patches] := case
		print(case)
		deny("restricted", patches) == {[sprintf("CORRAL-PSS-%s", [code]), path]}
	}
}

test_a_container_without_anything if {
	deny("restricted", [without("/spec/securityContext"), without("$C/securityContext"), without("/spec/initContainers")]) == {
		["CORRAL-PSS-102", "spec.containers[0].securityContext.allowPrivilegeEscalation"],
		["CORRAL-PSS-103", "spec.containers[0].securityContext.runAsNonRoot"],
		["CORRAL-PSS-105", "spec.containers[0].securityContext.seccompProfile"],
		["CORRAL-PSS-106", "spec.containers[0].securityContext.capabilities.drop"],
	}
}

test_the_level_is_that_of_the_trust if {
	rules := {"level": "baseline", "byTrust": {"public": "restricted", "release": "privileged"}}
	every trust, wanted in {
		"public": {"CORRAL-PSS-003", "CORRAL-PSS-103"},
		"release": set(),
		"": {"CORRAL-PSS-003"},
		"another": {"CORRAL-PSS-003"},
	} {
		pod := json.patch(good, [add("$C/securityContext/privileged", true), add("$C/securityContext/runAsNonRoot", false)])
		found := template.deny with input as {"pool": {"trust": trust}, "pod": pod} with data.library as {"podSecurity": rules}
		{finding.code | some finding in found} == wanted
	}
}

test_what_is_said if {
	pod := json.patch(good, [add("$C/securityContext/privileged", true)])
	found := template.deny with input as {"pool": {"trust": ""}, "pod": pod} with data.library as {"podSecurity": {"level": "baseline"}}
	found == {{
		"code": "CORRAL-PSS-003",
		"msg": "container runner is privileged",
		"path": "spec.containers[0].securityContext.privileged",
		"remediation": "remove privileged: to build images, use a builder that runs without, such as rootless BuildKit or Kaniko",
		"severity": "high",
	}}
}

# All Linux capabilities, and which of them the levels allow.
test_capabilities if {
	usual := {
		"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP",
		"SETUID", "SYS_CHROOT",
	}
	unusual := {
		"ALL", "AUDIT_CONTROL", "AUDIT_READ", "BLOCK_SUSPEND", "BPF", "CHECKPOINT_RESTORE", "DAC_READ_SEARCH", "IPC_LOCK", "IPC_OWNER",
		"LEASE", "LINUX_IMMUTABLE", "MAC_ADMIN", "MAC_OVERRIDE", "NET_ADMIN", "NET_BROADCAST", "NET_RAW", "PERFMON", "SYS_ADMIN",
		"SYS_BOOT", "SYS_MODULE", "SYS_NICE", "SYS_PACCT", "SYS_PTRACE", "SYS_RAWIO", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG",
		"SYSLOG", "WAKE_ALARM",
	}
	denied_of("baseline", usual | unusual) == unusual
	denied_of("restricted", usual | unusual) == (usual | unusual) - {"NET_BIND_SERVICE"}
}

# denied_of(level, capabilities) are the capabilities that a level denies.
denied_of(level, capabilities) := {capability |
	some capability in capabilities
	deny(level, [add("$C/securityContext/capabilities/add", [capability])]) != set()
}

# A value may not smuggle another sysctl.
test_values_of_sysctls if {
	every value in ["1+kernel.core_pattern=/evil", "1 kernel.core_pattern=/evil", "1\nkernel.core_pattern", "1\tb", "a=b"] {
		{path | some [_, path] in deny("baseline", [add("/spec/securityContext/sysctls", [{"name": "net.ipv4.tcp_syncookies", "value": value}])])} == {"spec.securityContext.sysctls[0].value"}
	}
	every value in ["", "0", "1024 65535", "4096\t87380\t6291456", "-1", "22,80-90"] {
		deny("baseline", [add("/spec/securityContext/sysctls", [{"name": "net.ipv4.ip_local_port_range", "value": value}])]) == set()
	}
}

test_sysctls if {
	confined := [
		"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_local_reserved_ports", "net.ipv4.ip_unprivileged_port_start",
		"net.ipv4.ping_group_range", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes",
		"net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_notsent_lowat", "net.ipv4.tcp_rmem", "net.ipv4.tcp_slow_start_after_idle",
		"net.ipv4.tcp_syncookies", "net.ipv4.tcp_wmem",
	]
	deny("baseline", [add("/spec/securityContext/sysctls", [{"name": name} | some name in confined])]) == set()
	every name in ["kernel.msgmax", "kernel.sem", "kernel.core_pattern", "net.ipv4.ip_forward", "net.core.somaxconn", "net.ipv4.tcp_mem", "vm.overcommit_memory"] {
		count(deny("baseline", [add("/spec/securityContext/sysctls", [{"name": name}])])) == 1
	}
}

test_selinux_types if {
	every type in ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"] {
		deny("baseline", [add("$C/securityContext/seLinuxOptions", {"type": type})]) == set()
	}
}

test_no_seccomp_anywhere if {
	unconfined := {"seccompProfile": {"type": "Unconfined"}}
	deny("baseline", [without("/spec/initContainers"), without("/spec/securityContext"), add("$C/securityContext", unconfined)]) == {
		["CORRAL-PSS-013", "spec.containers[0].securityContext.seccompProfile.type"],
	}
}

test_every_host_path if {
	rules := {"level": "restricted", "hostPaths": ["/"]}
	pod := json.patch(good, [add("/spec/volumes/1", {"name": "x", "hostPath": {"path": "/etc"}})])
	found := template.deny with input as {"pool": {"trust": ""}, "pod": pod} with data.library as {"podSecurity": rules}
	found == set()
}
