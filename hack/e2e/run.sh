#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0
#
# Runs test/e2e on a real node of its own: kubelet (built from Go modules), containerd, runc and CNI plug-ins (Debian's
# packages, unpacked but not installed), images made here from static Go binaries. All of it lives in fresh process, mount
# and network namespaces, with its files in memory, and ends with this script however that ends.
#
# Exit code 0 also when it cannot run here; it then says why.
set -euo pipefail
cd "$(dirname "$0")/../.."

skip() {
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

# Everything that needs the network or the caches is done out here.
unset KUBEBUILDER_ASSETS # envtest's own have no kubelet
export CGO_ENABLED=0 GOFLAGS="-buildvcs=false -trimpath"
cache=$PWD/.cache/e2e
mkdir -p "$cache/bin" "$cache/images"

packages="containerd runc containernetworking-plugins"
if [ ! -d "$cache/debian" ]; then
	echo "e2e: downloading $packages (35 MB, once)"
	rm -rf "$cache/unfinished"
	mkdir -p "$cache/unfinished/archives"
	(cd "$cache/unfinished/archives" && apt-get -qq -o APT::Sandbox::User=root download $packages) || {
		echo "e2e: apt-get cannot download the packages; 'apt-get update' may help" >&2
		exit 1
	}
	for archive in "$cache"/unfinished/archives/*.deb; do
		dpkg -x "$archive" "$cache/unfinished"
	done
	rm -r "$cache/unfinished/archives"
	mv "$cache/unfinished" "$cache/debian"
fi
KUBEBUILDER_ASSETS=$(go run ./sim/localcluster/cmd/assets)
export KUBEBUILDER_ASSETS
go build -ldflags '-s -w' -o "$cache/bin/" ./cmd/corral ./sim/githubsim/cmd/simrunner ./hack/e2e/pause ./hack/e2e/image
"$cache/bin/image" corral.test/pause:1 65535:65535 "$cache/bin/pause" >"$cache/images/pause.tar"
"$cache/bin/image" corral.test/runner:1 1001:1001 "$cache/bin/simrunner" >"$cache/images/runner.tar"
go test -c -tags e2e -o "$cache/bin/e2e.test" ./test/e2e

# What a kubelet changes outside of its namespaces is put back: three settings and its control groups.
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
