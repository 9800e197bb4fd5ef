// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Command corral-demo runs Corral's main functions on one machine. Package demo describes them.
package main

import (
	"fmt"
	"os"

	"github.com/corral-dev/corral/sim/demo"
)

func main() {
	if err := demo.Command().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}
