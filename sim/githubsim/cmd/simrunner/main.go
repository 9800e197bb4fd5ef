// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Command simrunner is the simulated runner as a container's main process. It reads its JIT configuration from
// ACTIONS_RUNNER_INPUT_JITCONFIG and exits as the wrapper script of the real image does.
//
//	simrunner                    as run.sh: runs one job, or one job after another if the runner was configured
//	simrunner configure OPTIONS  as config.sh: registers, and writes .runner to the working folder
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/corral-dev/corral/sim/githubsim/simrunner"
)

const (
	// configuration is the file that config.sh writes.
	configuration = ".runner"
	// inputs is the prefix of variables for the runner, which jobs do not get.
	inputs = "ACTIONS_RUNNER_INPUT_"
	// workFolder is where scripts run.
	workFolder = "_work"
	// maxLog is how much of a script's output is reported.
	maxLog = 64 << 10
	// killDelay is how long processes that a script has left running may keep its output open.
	killDelay = 5 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	if len(os.Args) > 1 && os.Args[1] == "configure" {
		err := configure(ctx, os.Args[2:])
		stop()
		if err != nil {
			slog.Error("the runner isn't configured", "error", err)
			os.Exit(1)
		}
		return
	}
	code, err := run(ctx)
	stop()
	if err != nil {
		slog.Error("the runner ended without a job done", "exitCode", code, "error", err)
	}
	os.Exit(simrunner.ContainerExitCode(code, os.Getenv("ACTIONS_RUNNER_RETURN_VERSION_DEPRECATED_EXIT_CODE") == "1"))
}

func configure(ctx context.Context, args []string) error {
	config, err := simrunner.Hooks{}.Configure(ctx, os.Getenv(inputs+"TOKEN"), args)
	if err != nil {
		return err
	}
	if err := os.WriteFile(configuration, []byte(config), 0o600); err != nil {
		return fmt.Errorf("keeping the configuration: %w", err)
	}
	return nil
}

func run(ctx context.Context) (exitCode int, err error) {
	hooks := simrunner.Hooks{Script: runScript}
	made, err := os.ReadFile(configuration)
	switch {
	case err == nil:
		return hooks.Stay(ctx, string(made))
	case errors.Is(err, fs.ErrNotExist):
		return hooks.Run(ctx, os.Getenv(inputs+"JITCONFIG"))
	default:
		return simrunner.ExitTerminated, fmt.Errorf("reading the configuration: %w", err)
	}
}

// runScript runs a job's script in the work folder, without the variables for the runner.
func runScript(ctx context.Context, script string) (log string, err error) {
	if err := os.MkdirAll(workFolder, 0o755); err != nil {
		return "", fmt.Errorf("making the work folder: %w", err)
	}
	var out bytes.Buffer
	command := exec.CommandContext(ctx, "/bin/sh", "-e", "-c", script)
	command.Dir, command.WaitDelay = workFolder, killDelay
	command.Env = slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, inputs) })
	command.Stdout = io.MultiWriter(os.Stdout, &out)
	command.Stderr = command.Stdout
	err = command.Run()
	return string(out.Bytes()[max(0, out.Len()-maxLog):]), err
}
