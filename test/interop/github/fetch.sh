#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Corral Authors
# SPDX-License-Identifier: Apache-2.0
#
# Fetches what GitHub publishes of its REST API and its webhooks, as Octokit packs it, and prints the folder with it. A folder is of
# one set of versions, and is fetched once. The packages have some 500 MB: only what the tests read is unpacked.
set -euo pipefail
cd "$(dirname "$0")/../../.."

openapi=23.0.2 webhooks=12.1.0 examples=7.6.1
folder=$PWD/.cache/interop/github/openapi-$openapi-webhooks-$webhooks-examples-$examples
if [ ! -d "$folder" ]; then
	command -v npm >/dev/null || { echo "npm is not installed: it fetches what GitHub publishes" >&2; exit 1; }
	new=$folder.$$
	trap 'rm -rf "$new"' EXIT
	mkdir -p "$new/rest" "$new/webhooks" "$new/examples"
	# fetch PACKAGE SHA256 FOLDER FILE...: npm prints the name of the archive that it writes.
	fetch() {
		local archive
		archive=$new/$(npm pack --silent --pack-destination "$new" "@octokit/$1")
		echo "$2  $archive" | sha256sum --check --quiet >&2
		tar -xzf "$archive" -C "$3" --strip-components=1 "${@:4}"
		rm "$archive"
	}
	echo "fetching Octokit's descriptions of GitHub (31 MB, once)" >&2
	products=(api.github.com ghec ghes-3.17 ghes-3.18 ghes-3.19)
	files=("${products[@]/#/package/generated/}")
	fetch "openapi@$openapi" 71a18407dd5e8464f4e0525daf03deabbe65abd9287d6adc7b5d98f516cd0d0c "$new/rest" "${files[@]/%/.json}"
	fetch "openapi-webhooks@$webhooks" 112b87c7dcda464640248dcf5965bcd69027c65bb45c26ae78fbf3f0d1eaa740 "$new/webhooks" "${files[@]/%/.json}"
	fetch "webhooks-examples@$examples" 89e6cb1c6345d32e3dd775617fa54effbdc26c859e514898d7728e95e9738280 "$new/examples" --wildcards 'package/*/index.json'
	mv "$new" "$folder"
fi
echo "$folder"
