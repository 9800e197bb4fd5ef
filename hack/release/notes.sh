#!/usr/bin/env bash
# Prints the section of CHANGELOG.md for a version, such as v0.2.0: the notes of a release.
set -euo pipefail
version=${1:?usage: notes.sh VERSION}
notes=$(awk -v heading="## ${version#v}" '$0 == heading || index($0, heading " ") == 1 {found = 1; next} /^## / {found = 0} found' "$(dirname "$0")/../../CHANGELOG.md")
[ -n "${notes//[[:space:]]/}" ] || { echo "CHANGELOG.md has no section \"## ${version#v}\"" >&2; exit 1; }
printf '%s\n' "$notes"
