#!/usr/bin/env bash
# Records a run of the demo: bin/demo.cast for asciinema, and docs/images/demo.svg for the README.
# Needs asciinema (a package of Debian and Homebrew) and npm. Run it on a quiet machine, as the recording keeps its times.
set -euo pipefail
cd "$(dirname "$0")/.."
make build
asciinema rec --overwrite --quiet --cols 112 --rows 32 --idle-time-limit 2 --command 'bin/corral-demo --jobs 60 --duration 20s' bin/demo.cast
npx --yes svg-term-cli@2.1.1 --in bin/demo.cast --out docs/images/demo.svg --no-cursor --padding 12
