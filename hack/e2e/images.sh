#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0
#
# Creates the images for the pods from the files that packages.sh unpacked and the built binaries: images.sh CACHE
set -euo pipefail
cache=$1
own=$cache/own
rm -rf "$own"

# The image of the pod sandbox.
mkdir -p "$own/pause"
cp "$cache/bin/pause" "$own/pause/"
"$cache/bin/image" -user 65535:65535 -entrypoint /pause corral.test/pause:1 "$own/pause" >"$cache/images/pause.tar"

# The runner: scripts with the same names as in the real image, a user with access to Docker, and the programs that actions need.
home=$own/runner/home/runner
mkdir -p "$home"/{bin,externals/node20/bin}
cp "$cache/bin/simrunner" "$home/bin/"
printf '#!/bin/bash\ncd "${0%%/*}" && exec bin/simrunner configure "$@"\n' >"$home/config.sh"
printf '#!/bin/bash\ncd "${0%%/*}" && exec bin/simrunner\n' >"$home/run.sh"
printf '#!/bin/sh\necho "an action runs"\n' >"$home/externals/node20/bin/node"
chmod +x "$home"/{config.sh,run.sh,externals/node20/bin/node}
chown -Rh 1001:1001 "$home"
"$cache/bin/image" -user 1001 -workdir /home/runner corral.test/runner:1 "$cache/runner" "$own/runner" >"$cache/images/runner.tar"

# The Docker daemon. As in the image docker:dind, its storage is on a volume, because an overlay on an overlay is not possible.
"$cache/bin/image" -volume /var/lib/docker corral.test/dind:1 "$cache/dind" >"$cache/images/dind.tar"
