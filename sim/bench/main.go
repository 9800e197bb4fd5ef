// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Command bench measures Corral on this machine, with a real API server, the controller as a separate process, a
// simulated GitHub and a simulated node. It prints the median of each figure over several runs. docs/performance.md
// explains the figures.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/corral-dev/corral/internal/worker"
	"github.com/corral-dev/corral/sim/maximal"
)

// options are the command's flags.
type options struct {
	scenario   string
	runs       int
	latencies  []time.Duration
	duration   time.Duration
	idleWindow time.Duration
	seed       uint64
	flood      int
	pools      int
	corral     string
	json       string
	markdown   bool
	check      bool
	noFloor    bool
	timeline   string
}

func main() {
	if worker.IsChild() {
		worker.Main()
	}
	if len(os.Args) == 3 && os.Args[1] == cueCommand {
		if err := exportWithCUE(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "Error:", err)
			os.Exit(1)
		}
		return
	}
	if err := command().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	o := &options{}
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure Corral on this machine",
		Long: `Measure Corral on this machine. Exit code 0 means that all work was done: every job ran
once and nothing was left over; with --check also that no bound was broken. Scenarios:

` + describe(),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(c *cobra.Command, _ []string) error { return o.run(c.Context()) },
	}
	flags := c.Flags()
	flags.StringVar(&o.scenario, "scenario", ".", "regular expression of the scenarios to run")
	flags.IntVar(&o.runs, "runs", 3, "runs of each scenario; the median of each figure is shown")
	flags.DurationSliceVar(&o.latencies, "github-latency", []time.Duration{0, 100 * time.Millisecond}, "how long each answer of GitHub takes; bursts are run with each")
	flags.DurationVar(&o.duration, "duration", 2*time.Minute, "time over which the jobs of scenario poisson arrive")
	flags.DurationVar(&o.idleWindow, "idle-window", 5*time.Minute, "how long idle pools are watched")
	flags.Uint64Var(&o.seed, "seed", 1, "seed of the jobs of scenario poisson")
	flags.IntVar(&o.flood, "flood", 250_000, "requests of scenario webhooks-50 that mean nothing")
	flags.IntVar(&o.pools, "maximal-pools", maximal.MostPools, "pools of the tenant of scenario maximal-5000")
	flags.StringVar(&o.corral, "corral", "bin/corral", "the corral binary")
	flags.StringVar(&o.json, "json", "", "file to write the figures to, as JSON")
	flags.BoolVar(&o.markdown, "markdown", false, "print the tables as Markdown")
	flags.BoolVar(&o.check, "check", false, "fail when a bound is broken")
	flags.BoolVar(&o.noFloor, "no-floor", false, "don't measure the floor")
	flags.StringVar(&o.timeline, "timeline", "", "file to write, as CSV, when each job was queued and each pod was seen, in the last run")
	return c
}

func (o *options) run(parent context.Context) error {
	wanted, err := regexp.Compile(o.scenario)
	if err != nil {
		return fmt.Errorf("reading --scenario: %w", err)
	}
	if o.runs < 1 {
		return errors.New("--runs must be at least 1")
	}
	if o.corral, err = filepath.Abs(o.corral); err != nil {
		return fmt.Errorf("finding the corral binary: %w", err)
	}
	if _, err := os.Stat(o.corral); err != nil {
		return fmt.Errorf("finding the corral binary (`make build` makes it, --corral names it): %w", err)
	}
	ctrllog.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	ctx, restore := signal.NotifyContext(parent, syscall.SIGINT, syscall.SIGTERM)
	defer restore()
	context.AfterFunc(ctx, restore)
	results, err := o.measure(ctx, wanted)
	if writeErr := o.write(os.Stdout, results); writeErr != nil {
		return errors.Join(err, writeErr)
	}
	if err != nil {
		return err
	}
	return o.judge(results)
}

// measure runs the scenarios. On an error, it also returns what was measured until then.
func (o *options) measure(ctx context.Context, wanted *regexp.Regexp) ([]result, error) {
	var results []result
	for _, c := range o.cases(wanted) {
		runs := make([]figures, 0, o.runs)
		for i := range o.runs {
			began := time.Now()
			f, err := c.run(ctx, o, c.latency)
			if err != nil {
				return results, fmt.Errorf("%s, run %d: %w", c, i+1, err)
			}
			runs = append(runs, f)
			say("%s, run %d of %d, took %s: %s", c, i+1, o.runs, time.Since(began).Round(time.Second), f.summary())
		}
		results = append(results, result{Scenario: c.name, GitHubLatencyMS: int(c.latency.Milliseconds()), Runs: len(runs), Figures: medians(runs)})
	}
	if len(results) == 0 {
		return nil, fmt.Errorf("no scenario matches %q", o.scenario)
	}
	return results, nil
}

func (o *options) write(to io.Writer, results []result) error {
	if len(results) == 0 {
		return nil
	}
	if o.json != "" {
		if err := writeJSON(o.json, results); err != nil {
			return err
		}
	}
	printTables(to, results, o.markdown)
	return nil
}

// judge prints the figures that exceed their bounds. With --check, it fails if there are any.
func (o *options) judge(results []result) error {
	broken := brokenBounds(results)
	for _, b := range broken {
		say("beyond its bound: %s", b)
	}
	if o.check && len(broken) > 0 {
		return fmt.Errorf("%d figures are beyond their bounds, see above", len(broken))
	}
	return nil
}

// say prints progress.
func say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
