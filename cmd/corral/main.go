// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import "os"

var version = "dev"

func main() {
	c := controllerCommand(version)
	c.SetArgs(os.Args[2:])
	if c.Execute() != nil {
		os.Exit(1)
	}
}
