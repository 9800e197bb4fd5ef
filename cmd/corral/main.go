// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Command corral runs fleets of GitHub Actions runners. `corral controller` runs the controllers in a cluster. The
// other commands use the same packages on the command line, for example to check definitions and to review changes.
package main

import (
	"os"

	"github.com/corral-dev/corral/internal/cli"
	"github.com/corral-dev/corral/internal/worker"
)

// version is the version of the release. Release builds set it with a linker flag.
var version = "dev"

func main() {
	if worker.IsChild() {
		worker.Main()
	}
	os.Exit(cli.Run(cli.NewRootAs(os.Args[0], version)))
}
