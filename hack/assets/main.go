// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Command assets builds the local control plane that tests and the demo run, once,
// so that its progress is seen and no test's time limit counts it.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/corral-dev/corral/internal/localcluster"
)

func main() {
	dir, err := localcluster.Assets(context.Background(), os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(dir)
}
