// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line. It parses flags, calls the pure packages and prints their results.
package cli

import (
	"errors"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// Exit codes of every command.
const (
	// exitOK means success.
	exitOK = 0
	// exitError means that the input is invalid, or that the command failed.
	exitError = 1
	// exitDenied means that a policy denies something.
	exitDenied = 2
	// exitChanged means that there are changes, if a flag asks for this exit code, that GitHub does not behave as required, or
	// that the command could not check everything.
	exitChanged = 3
	// exitFailOn means that another condition of --fail-on holds.
	exitFailOn = 4
)

var (
	// errDenied is wrapped by the errors with which commands exit with exitDenied.
	errDenied = errors.New("denied by policy")
	// errChanged is wrapped by the errors of commands that a flag tells to fail if there are changes.
	errChanged = errors.New("there are changes")
	// errFailOn is wrapped by the errors with which review exits with exitFailOn.
	errFailOn = errors.New("so --fail-on fails the review")
	// errDiffers is wrapped by the error of conformance if GitHub does not behave as Corral requires.
	errDiffers = errors.New("differ from what Corral requires, or were not verified")
)

const longHelp = `Corral runs fleets of GitHub Actions runners on Kubernetes. Pools are declared in CUE
and stored in Git. Corral compiles them to Kubernetes objects that its controllers reconcile.

Exit codes: 0 success, 1 an error, a problem or an invalid definition, 2 denied by a policy,
3 changes (review --exit-code, fmt --check), differences (conformance), or objects that could not be
checked (status), 4 a finding of review --fail-on.

To use corral as a kubectl plugin, link it as kubectl-corral on the PATH: kubectl corral status.`

// pluginName is the file name with which kubectl finds the plugin.
const pluginName = "kubectl-corral"

// NewRootAs returns the root command. If the file name of program, the path of the running program, is the name of kubectl's
// plugin, the help shows "kubectl corral" as the name of the command.
func NewRootAs(program, version string) *cobra.Command {
	root := NewRoot(version)
	if strings.TrimSuffix(filepath.Base(program), ".exe") == pluginName {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl corral"}
	}
	return root
}

// NewRoot returns the root command.
func NewRoot(version string) *cobra.Command {
	root := &cobra.Command{
		Use:           "corral",
		Short:         "Run fleets of GitHub Actions runners on Kubernetes",
		Long:          longHelp,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(
		newBuild(), newCalendar(), newConformance(version), newController(version), newEval(), newExplain(version), newFmt(), newInit(version), newMod(),
		newReview(version), newStatus(version), newTest(), newVersion(version), newVet(version),
	)
	return root
}

// exitCode returns the exit code for the error of a command.
func exitCode(err error) int {
	for _, exit := range []struct {
		cause error
		code  int
	}{{nil, exitOK}, {errDenied, exitDenied}, {errChanged, exitChanged}, {errDiffers, exitChanged}, {errUnseen, exitChanged}, {errFailOn, exitFailOn}} {
		if errors.Is(err, exit.cause) {
			return exit.code
		}
	}
	return exitError
}
