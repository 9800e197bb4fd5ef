// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Command assets prints the folder for KUBEBUILDER_ASSETS, or with the argument node or kubectl the folder or the path of
// those, after building them if necessary. A make target that runs it first keeps the build out of the time limit of the
// tests.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/corral-dev/corral/sim/gobuild"
	"github.com/corral-dev/corral/sim/localcluster"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	find := localcluster.Assets
	switch strings.Join(os.Args[1:], " ") {
	case "node":
		find = localcluster.Node
	case "kubectl":
		find = localcluster.Kubectl
	}
	path, err := find(ctx, gobuild.Terminal(os.Stderr))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(path)
}
