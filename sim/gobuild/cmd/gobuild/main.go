// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Command gobuild runs `go build` with its arguments, and shows the progress.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/corral-dev/corral/sim/gobuild"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	build := gobuild.Build{Title: "Compiling Corral", Env: os.Environ(), Verb: "build", Args: os.Args[1:]}
	if err := build.Run(ctx, gobuild.Terminal(os.Stderr)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
