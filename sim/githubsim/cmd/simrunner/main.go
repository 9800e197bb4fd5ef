// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Command simrunner is the simulated runner as a container's main process. It
// takes its JIT configuration from ACTIONS_RUNNER_INPUT_JITCONFIG and exits as
// the wrapper script of the real image does.
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/corral-dev/corral/sim/githubsim/simrunner"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	code, err := simrunner.Run(ctx, os.Getenv("ACTIONS_RUNNER_INPUT_JITCONFIG"))
	stop()
	if err != nil {
		slog.Error("the runner ended without a job done", "exitCode", code, "error", err)
	}
	os.Exit(simrunner.ContainerExitCode(code, os.Getenv("ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE") == "1"))
}
