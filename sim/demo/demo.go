// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/corral-dev/corral/internal/wording"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/world"
)

const (
	// buildLimit bounds building the control plane, which happens once.
	buildLimit = 30 * time.Minute
	// grace is how long the demo may take beyond the time over which jobs arrive.
	grace = 10 * time.Minute
	// stayLimit bounds how long the demo stays for exploration.
	stayLimit = 12 * time.Hour
	// lookLimit is the time limit of the final check for left-over objects.
	lookLimit = 10 * time.Second
	// drawInterval is the time between two updates of the screen, sampleInterval between two samples of the
	// controller's resource use.
	drawInterval   = 250 * time.Millisecond
	sampleInterval = 5 * time.Second
)

// demo is the state that all steps share.
type demo struct {
	options
	screen *screen

	world      *world.World
	controller *world.Controller
	webhooks   string // the controller's webhook address
	repository *repository
	inForce    string // the commit that was applied last
	plan       []burst
	arrived    chan struct{} // closed when every job has been added
	firstJob   time.Time
	explored   bool // Ctrl-C is not an interruption any more: --stay waits for it

	outcome     outcome
	usedBefore  use
	askedBefore map[githubsim.Endpoint]int

	background sync.WaitGroup
	fail       context.CancelCauseFunc // ends the demo with an error

	peakMemory float64 // in bytes; written by watchMemory until the background goroutines have ended
}

func newDemo(o options, s *screen) *demo {
	return &demo{options: o, screen: s, arrived: make(chan struct{}), outcome: outcome{Planned: o.jobs}}
}

// run runs the story, prints the summary, and always cleans up.
func (d *demo) run(ctx context.Context) error {
	if err := d.prepare(ctx); err != nil {
		return err
	}
	limit := d.duration + grace
	if d.stay {
		limit += stayLimit
	}
	timed, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the demo is not over after %s", limit))
	defer cancel()
	telling, stop := context.WithCancelCause(timed)
	d.fail = stop
	err := d.tell(telling)
	stop(nil)
	d.background.Wait()
	d.screen.leave()
	interrupted := ctx.Err() != nil
	switch {
	case interrupted:
		d.screen.say("Cleaning up")
	case err == nil:
		err = d.sumUp(ctx)
	}
	return errors.Join(err, d.cleanUp(err != nil && !interrupted, interrupted))
}

// tell runs one step after the other.
func (d *demo) tell(ctx context.Context) error {
	for _, s := range story {
		if err := s.do(d, ctx); err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
	}
	return nil
}

// pause waits until a moment.
func pause(ctx context.Context, moment time.Time) error {
	timer := time.NewTimer(time.Until(moment))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// inBackground runs do concurrently with the story. If do fails, the story fails.
func (d *demo) inBackground(ctx context.Context, do func(context.Context) error) {
	d.background.Go(func() {
		if err := do(ctx); err != nil && ctx.Err() == nil {
			d.fail(err)
		}
	})
}

// watchPools updates the view until the demo ends, and prints changes of a pool's readiness.
func (d *demo) watchPools(ctx context.Context) error {
	var before []poolRow
	tick := time.NewTicker(drawInterval)
	defer tick.Stop()
	for {
		rows, err := d.rows(ctx)
		if err != nil {
			return err
		}
		for _, change := range readiness(before, rows) {
			d.screen.say("%s", change)
		}
		before = rows
		f := frame{Elapsed: time.Since(d.screen.started), Pools: rows}
		f.Done, f.Running, f.Waiting = d.progress()
		f.All = max(d.jobs, f.Done+f.Running+f.Waiting) // with --stay, jobs arrive beyond those that were planned
		d.screen.draw(f)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// watchMemory records the controller's peak memory. It fails if the controller no longer responds.
func (d *demo) watchMemory(ctx context.Context) error {
	tick := time.NewTicker(sampleInterval)
	defer tick.Stop()
	for {
		now, err := readUse(ctx, d.controller.MetricsURL)
		if err != nil {
			return fmt.Errorf("the controller is gone: %w", err)
		}
		d.peakMemory = max(d.peakMemory, now.MemoryBytes)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// measure records the controller's resource use once the jobs are done.
func (d *demo) measure(ctx context.Context) error {
	used, err := readUse(ctx, d.controller.MetricsURL)
	if err != nil {
		return err
	}
	o := &d.outcome
	o.JobPhase = time.Since(d.firstJob)
	o.Requests = difference(d.askedBefore, d.world.GitHub.Report().Requests)
	o.Use = use{KubeRequests: used.KubeRequests - d.usedBefore.KubeRequests, CPUSeconds: used.CPUSeconds - d.usedBefore.CPUSeconds}
	return nil
}

// sumUp prints the outcome, and returns an error if it contains problems.
func (d *demo) sumUp(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	o := &d.outcome
	if o.Left, err = d.leftovers(ctx); err != nil {
		return err
	}
	if o.LogErrors, err = countErrors(d.controller.LogPath); err != nil {
		return err
	}
	report := d.world.GitHub.Report()
	o.Deliveries = d.world.GitHub.Deliveries(0)
	o.Jobs, o.RunnersMade, o.Broken = d.world.GitHub.Jobs(), report.RunnersMade, report.Broken
	o.Use.MemoryBytes = d.peakMemory // the goroutine that writes it has ended
	d.screen.print(o.lines(d.screen.palette)...)
	if n := len(o.problems()); n > 0 {
		return fmt.Errorf("%s, see above", wording.Count(n, "problem"))
	}
	d.screen.say("Next: add a pool of your own with make demo ARGS=--stay, as docs/getting-started.md describes, or run a pool on a cluster with\ndocs/quickstart.md")
	return nil
}

// cleanUp stops everything. If the demo was interrupted, errors of stopping the controller are ignored.
func (d *demo) cleanUp(keepLog, interrupted bool) error {
	var errs []error
	if d.controller != nil {
		if err := d.controller.Stop(); err != nil && !interrupted {
			errs = append(errs, err)
			keepLog = true
		}
		if keepLog {
			errs = append(errs, keep(d.controller.LogPath))
		}
	}
	if d.world != nil {
		if err := d.world.Stop(); !interrupted {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// keep copies the controller's log so that it is not removed. The returned error contains the path.
func keep(log string) error {
	text, err := os.Open(log)
	if err != nil {
		return fmt.Errorf("keeping the controller's log: %w", err)
	}
	defer text.Close()
	copied, err := os.CreateTemp("", "corral-demo-*-"+filepath.Base(log))
	if err != nil {
		return fmt.Errorf("keeping the controller's log: %w", err)
	}
	defer copied.Close()
	if _, err := io.Copy(copied, text); err != nil {
		return fmt.Errorf("keeping the controller's log: %w", err)
	}
	return fmt.Errorf("the controller's log is %s", copied.Name())
}
