# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

# METADATA
# scope: package
# title: No Docker socket
# description: |
#  Who may speak to the container runtime of a node is root of that node. This denies its sockets, and host paths that
#  they lie in. `library.podSecurity` denies all host paths; this is for pools that may have others.
# custom:
#  kind: ClusterRunnerPolicy
package corral.template

sockets := {"/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock", "/run/crio/crio.sock"}

# METADATA
# title: Runtime sockets stay on the node
# custom:
#  code: ACME-SOCKET-1
deny contains {
	"msg": sprintf("volume %s gives the pod %s of the node", [volume.name, socket]),
	"path": sprintf("spec.volumes[%d].hostPath.path", [i]),
	"code": "ACME-SOCKET-1",
	"severity": "critical",
	"remediation": "build images without the node's runtime: with a sidecar of docker:dind-rootless, BuildKit or Kaniko",
} if {
	some i, volume in input.pod.spec.volumes
	some socket in sockets
	path := sprintf("%s/", [trim_right(volume.hostPath.path, "/")])
	startswith(sprintf("%s/", [socket]), path)
}
