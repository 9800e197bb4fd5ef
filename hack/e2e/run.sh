#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs test/e2e on a real node: kubelet and kube-scheduler (built from Go modules), containerd, runc and CNI plug-ins
# (Debian packages, unpacked but not installed), and images that are built here from such packages and static Go binaries. Everything
# runs in new process, mount and network namespaces, keeps its files in memory, and ends when this script ends for any reason.
#
# If the machine is not suitable, it prints the reason and exits with 0, or with 1 if E2E=required is set.
set -euo pipefail
cd "$(dirname "$0")/../.."

skip() {
	if [ "${E2E:-}" = required ]; then
		echo "e2e: FAILED: $*; E2E=required asks for it to run" >&2
		exit 1
	fi
	echo "e2e: SKIPPED: $*"
	exit 0
}
[ "$(uname -s)" = Linux ] || skip "containers need Linux"
[ "$(id -u)" = 0 ] || skip "running containers needs root"
for tool in apt-get dpkg unshare ip; do
	command -v "$tool" >/dev/null || skip "$tool is not installed (a Debian or Ubuntu machine is needed)"
done
unshare --mount --net --pid --fork --mount-proc --kill-child ip link add e2e0 type bridge 2>/dev/null ||
	skip "this machine does not allow new namespaces with a network bridge"

# Everything that needs the network or the caches runs here, outside of the namespaces.
unset KUBEBUILDER_ASSETS # inside of the namespaces nothing can be built, such as controllers that assets of envtest do not contain
export CGO_ENABLED=0
cache=$PWD/.cache/e2e
mkdir -p "$cache/bin" "$cache/images"

hack/e2e/packages.sh "$cache"
unshare --net chroot "$cache/dind" /usr/sbin/iptables -t nat -L >/dev/null 2>&1 ||
	skip "the kernel has no nf_tables, of which Docker's networks are made"
KUBEBUILDER_ASSETS=$(go run ./sim/localcluster/cmd/assets)
CORRAL_E2E_NODE=$(go run ./sim/localcluster/cmd/assets node)
CORRAL_E2E_KUBECTL=$(go run ./sim/localcluster/cmd/assets kubectl)
export KUBEBUILDER_ASSETS CORRAL_E2E_NODE CORRAL_E2E_KUBECTL
go build -ldflags '-s -w' -o "$cache/bin/" ./sim/githubsim/cmd/simrunner ./hack/e2e/pause ./hack/e2e/image
hack/e2e/images.sh "$cache"
for version in v1 v2; do # the controller's image, as `make image` builds it, in two versions
	go run ./hack/image -version "$version" -tag "corral.test/corral:$version" -out "$cache/images/$version"
done
go test -c -tags e2e -o "$cache/bin/e2e.test" ./test/e2e

# Restore what a kubelet changes outside of its namespaces: three kernel settings and its control groups.
settings="vm.overcommit_memory kernel.panic kernel.panic_on_oops"
saved=$(for s in $settings; do echo "$s=$(cat "/proc/sys/${s//.//}")"; done)
cgroups() {
	if [ -e /sys/fs/cgroup/cgroup.controllers ]; then echo /sys/fs/cgroup/corral-e2e; else
		for controller in /sys/fs/cgroup/*/; do echo "${controller}corral-e2e"; done
	fi
}
restore() {
	for s in $saved; do
		key=${s%%=*}
		echo "${s#*=}" >"/proc/sys/${key//.//}" || true
	done
	for group in $(cgroups); do
		[ ! -d "$group" ] || find "$group" -depth -type d -exec rmdir {} \; || true
	done
}
trap restore EXIT
for group in $(cgroups); do mkdir -p "$group"; done

unshare --mount --net --pid --fork --mount-proc --kill-child hack/e2e/inside.sh "$cache" "$@"
