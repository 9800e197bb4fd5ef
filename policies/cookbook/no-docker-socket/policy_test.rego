# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0

package corral.cookbook.no_docker_socket_test

import data.corral.template

deny(path) := found if {
	found := template.deny with input as {"pod": {"spec": {"volumes": [
		{"name": "work", "emptyDir": {}},
		{"name": "host", "hostPath": {"path": path}},
	]}}}
}

test_the_socket if {
	{finding.path | some finding in deny("/var/run/docker.sock")} == {"spec.volumes[1].hostPath.path"}
}

test_what_it_lies_in if {
	every path in ["/", "/run", "/run/", "/var/run", "/var", "/run/containerd", "/run/k3s/containerd", "/var/run/crio"] {
		count(deny(path)) == 1
	}
}

test_other_runtimes if {
	every path in [
		"/run/containerd/containerd.sock", "/run/containerd/containerd.sock.ttrpc", "/run/docker/containerd/containerd.sock",
		"/run/k3s/containerd/containerd.sock", "/var/run/crio/crio.sock", "/run/podman/podman.sock", "/var/run/cri-dockerd.sock",
	] {
		count(deny(path)) == 1
	}
}

test_however_it_is_written if {
	every path in [
		"//", "/.", "//var/run", "/var//run/docker.sock", "/var/run/./docker.sock", "/./run/docker.sock/", "/run/docker.sock/.",
		"/var/lib/../run/docker.sock", "/var/cache/..",
	] {
		count(deny(path)) == 1
	}
}

test_by_way_of_a_process if {
	every path in ["/proc", "/proc/1/root/run/docker.sock", "//proc/1/./root/", "/proc/self/cwd", "/proc/1/task/1/root/var/run"] {
		count(deny(path)) == 1
	}
}

test_it_says_what if {
	{finding.msg | some finding in deny("//run/crio")} == {"volume host gives the pod access to /run/crio/crio.sock of the node"}
	{finding.msg | some finding in deny("/proc/1/root")} == {"volume host gives the pod access to every file of the node"}
}

test_other_paths if {
	every path in ["/var/cache/ci", "/run/docker.sockets", "/ru", "/process", "/run/user", "/var/running", "/srv/..data"] {
		deny(path) == set()
	}
}
