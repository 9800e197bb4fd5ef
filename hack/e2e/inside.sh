#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0
#
# The part of run.sh that runs in the namespaces: inside.sh CACHE [test flags].
set -euo pipefail
cache=$1
shift

# Files that containerd, kubelet and the plug-ins write to fixed paths are kept in memory and disappear with the namespace.
for dir in /var/lib /var/log /run; do mount -t tmpfs e2e "$dir"; done
export TMPDIR=/run/tmp
mkdir -p "$TMPDIR"

# The bridge of the pods. The default route leads nowhere, but kube-apiserver and kubelet do not start without one.
ip link set lo up
ip link add corral0 type bridge
ip address add 10.99.0.1/24 dev corral0
ip link set corral0 up
ip route add default via 10.99.0.1 dev corral0

CORRAL_E2E_GOROOT=$(go env GOROOT)
export CORRAL_E2E_GOROOT CORRAL_E2E_CACHE=$cache PATH=$cache/node/usr/sbin:$cache/node/usr/bin:$PATH
cd test/e2e
"$cache/bin/e2e.test" -test.v -test.timeout 15m "$@"
