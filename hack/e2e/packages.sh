#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0
#
# Unpacks Debian's packages below CACHE, once: node has what the node runs, dind and runner the file systems of two images.
# packages.sh CACHE
set -euo pipefail
cache=$1

node="containerd runc containernetworking-plugins"
dind="docker.io iptables containerd runc busybox-static libc6 libsystemd0 libdevmapper1.02.1 libudev1 libselinux1 libpcre2-8-0
	libcap2 libgcrypt20 libgpg-error0 liblz4-1 liblzma5 libzstd1 libseccomp2
	libip4tc2 libip6tc2 libxtables12 libmnl0 libnetfilter-conntrack3 libnfnetlink0 libnftnl11"
runner="docker.io bash busybox-static libc6 libtinfo6"

# What is made of the packages goes by this script, too.
wanted=$(sha256sum "$0" | cut -d' ' -f1)
[ "$(cat "$cache/packages" 2>/dev/null)" != "$wanted" ] || exit 0

packages=$(printf '%s\n' $node $dind $runner | sort -u)
echo "e2e: downloading" $packages "(80 MB, once)"
rm -rf "$cache"/{packages,archives,node,dind,runner,debian}
mkdir -p "$cache"/{archives,node,dind,runner}
(cd "$cache/archives" && apt-get -qq -o APT::Sandbox::User=root download $packages) || {
	echo "e2e: apt-get cannot download the packages; 'apt-get update' may help" >&2
	exit 1
}
unpack() { # FOLDER PACKAGE...
	local folder=$cache/$1 package
	shift
	for package; do dpkg -x "$cache/archives/${package}"_*.deb "$folder"; done
}
unpack node $node
unpack dind $dind
unpack runner $runner
rm -r "$cache/archives"

# root FOLDER gives a file system what Debian's installer does, and leaves out what nothing here reads.
root() {
	local folder=$cache/$1 applet
	rm -rf "$folder"/usr/share "$folder"/usr/lib/*/gconv
	mkdir -p "$folder"/{tmp,run,etc,home/runner,var/lib}
	chmod 1777 "$folder/tmp"
	ln -sfn /run "$folder/var/run"
	for applet in $("$folder/bin/busybox" --list); do
		[ -e "$folder/bin/$applet" ] || ln -s busybox "$folder/bin/$applet"
	done
	printf 'root:x:0:0::/root:/bin/sh\nrunner:x:1001:1001::/home/runner:/bin/bash\n' >"$folder/etc/passwd"
	printf 'root:x:0:\ndocker:x:123:runner\nrunner:x:1001:\n' >"$folder/etc/group"
}
root dind
rm -f "$cache"/dind/usr/bin/{ctr,containerd-stress,containerd-shim,containerd-shim-runc-v1,dnet} "$cache/dind/usr/sbin/ovrouter"
for name in iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore; do
	rm -f "$cache/dind/bin/$name"
	ln -sfn xtables-nft-multi "$cache/dind/usr/sbin/$name"
done
root runner
rm -rf "$cache"/runner/usr/{sbin,lib/docker,libexec} "$cache"/runner/usr/bin/{dnet,docker-init} # the client alone
echo "$wanted" >"$cache/packages"
