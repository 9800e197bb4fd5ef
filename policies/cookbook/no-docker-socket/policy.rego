# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# scope: package
# title: No Docker socket
# description: |
#  A job with access to the container runtime of a node has root access to that node. This policy denies host paths that
#  are or contain a socket of a runtime, however the path is written. It also denies all of `/proc`, which gives access to every file
#  of the node. `library.podSecurity` denies all host paths. Use this recipe for pools that may have other host paths.
# custom:
#  kind: ClusterRunnerPolicy
package corral.template

# sockets of Docker, containerd, K3s, CRI-O, Podman and cri-dockerd, with a slash at the end.
sockets contains sprintf("%s/%s/", [folder, socket]) if {
	some folder in ["run", "var/run"]
	some socket in [
		"docker.sock", "docker/containerd/containerd.sock", "containerd/containerd.sock", "containerd/containerd.sock.ttrpc",
		"k3s/containerd/containerd.sock", "crio/crio.sock", "podman/podman.sock", "cri-dockerd.sock",
	]
}

# plain normalizes a path: var/run/ for //var/./run.
plain(path) := concat("", [sprintf("%s/", [part]) |
	some part in split(path, "/")
	not part in {"", "."}
])

# gives describes what a host path gives access to.
gives(path) := sprintf("/%s", [trim_suffix(reached[0], "/")]) if {
	reached := [socket | some socket in sockets; startswith(socket, plain(path))]
	count(reached) > 0
} else := "every file" if {
	startswith(plain(path), "proc/")
} else := "any file" if {
	contains(sprintf("/%s", [plain(path)]), "/../")
}

# METADATA
# title: Pods have no access to runtime sockets
# custom:
#  code: ACME-SOCKET-1
deny contains {
	"msg": sprintf("volume %s gives the pod access to %s of the node", [volume.name, gives(volume.hostPath.path)]),
	"path": sprintf("spec.volumes[%d].hostPath.path", [i]),
	"code": "ACME-SOCKET-1",
	"severity": "critical",
	"remediation": "build images without the node's runtime: with a sidecar of docker:dind-rootless, BuildKit or Kaniko",
} if {
	some i, volume in input.pod.spec.volumes
}
