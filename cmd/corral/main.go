// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"

	"github.com/corral-dev/corral/internal/compileworker"
)

var version = "dev"

func main() {
	if compileworker.IsChild() {
		compileworker.Main()
	}
	c := controllerCommand(version)
	c.SetArgs(os.Args[2:])
	if c.Execute() != nil {
		os.Exit(1)
	}
}
