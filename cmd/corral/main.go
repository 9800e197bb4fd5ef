// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Command corral runs fleets of GitHub Actions runners: `corral controller` is the controller in the cluster, and the
// other commands apply the same rules on the command line.
package main

import (
	"os"

	"github.com/corral-dev/corral/internal/cli"
	"github.com/corral-dev/corral/internal/worker"
)

// version is set in release builds.
var version = "dev"

func main() {
	if worker.IsChild() {
		worker.Main()
	}
	os.Exit(cli.Run(cli.NewRootAs(os.Args[0], version)))
}
