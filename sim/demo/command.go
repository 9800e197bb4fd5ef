// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package demo shows Corral's main job on one machine: a Git repository of pools, a real API server, the controller, a
// simulated GitHub to which jobs arrive, and pods that run the jobs. It prints a summary in numbers, and removes
// everything that it created.
package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/corral-dev/corral/sim/githubsim"
)

const (
	// maxJobs bounds --jobs.
	maxJobs = 10_000
	// minDuration leaves room for the commits between the jobs.
	minDuration = 10 * time.Second
)

// options are the command's flags.
type options struct {
	duration time.Duration
	jobs     int
	seed     uint64
	github   string
	corral   string
	noColor  bool
	stay     bool
}

// Command returns the command corral-demo.
func Command() *cobra.Command {
	o := &options{}
	c := &cobra.Command{
		Use:   "corral-demo",
		Short: "Run Corral on this machine with a simulated GitHub, and print a summary",
		Long: `Run Corral on this machine: pools from a Git repository, a real API server, the
controller, a simulated GitHub that sends jobs, and simulated pods that run them.

It runs in a checkout of Corral, ends by itself (with --stay: by Ctrl-C), and
removes everything that it created. Exit code 0 means that every job ran exactly
once, and that nothing was left over in the cluster or on GitHub.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(c *cobra.Command, _ []string) error { return o.run(c) },
	}
	flags := c.Flags()
	flags.DurationVar(&o.duration, "duration", time.Minute, "time over which jobs arrive")
	flags.IntVar(&o.jobs, "jobs", 120, "number of jobs")
	flags.Uint64Var(&o.seed, "seed", 1, "seed that determines the pool, the arrival and the duration of each job")
	flags.BoolVar(&o.stay, "stay", false, "keep everything running after the last job, until Ctrl-C")
	flags.StringVar(&o.github, "github", string(githubsim.AutoAssign), "the GitHub to simulate: auto-assign (github.com) or acquire (GitHub Enterprise Server)")
	flags.StringVar(&o.corral, "corral", "", "the corral binary (default: in the same folder as this one)")
	flags.BoolVar(&o.noColor, "no-color", os.Getenv("NO_COLOR") != "", "print no colors")
	return c
}

// check completes the options and validates them.
func (o *options) check() error {
	modes := []string{string(githubsim.AutoAssign), string(githubsim.Acquire)}
	switch {
	case o.duration < minDuration:
		return fmt.Errorf("--duration must be at least %s", minDuration)
	case o.jobs < 1 || o.jobs > maxJobs:
		return fmt.Errorf("--jobs must be 1 to %d", maxJobs)
	case !slices.Contains(modes, o.github):
		return fmt.Errorf("--github must be %s", strings.Join(modes, " or "))
	}
	if o.corral == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("finding the corral binary: %w", err)
		}
		o.corral = filepath.Join(filepath.Dir(self), "corral")
	}
	absolute, err := filepath.Abs(o.corral) // --stay prints it for a shell in another folder
	if err != nil {
		return fmt.Errorf("finding the corral binary: %w", err)
	}
	o.corral = absolute
	if _, err := os.Stat(o.corral); err != nil {
		return fmt.Errorf("finding the corral binary (run `make build`, or set --corral): %w", err)
	}
	return nil
}

func (o *options) run(c *cobra.Command) error {
	if err := o.check(); err != nil {
		return err
	}
	ctrllog.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	// A closed terminal or pipe ends the demo cleanly, like ^C. A second ^C kills the process.
	ctx, restore := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	defer restore()
	context.AfterFunc(ctx, restore)
	d := newDemo(*o, newScreen(os.Stdout, o.noColor))
	err := d.run(ctx)
	if ctx.Err() != nil {
		if d.explored {
			return nil // Ctrl-C is how --stay ends
		}
		return errors.New("interrupted; everything was cleaned up")
	}
	return err
}
