// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/actions/scaleset"

	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/githubsim/simrunner"
)

// pool is a scale set with an open session and a runner's configuration.
type pool struct {
	client  *scaleset.Client
	set     *scaleset.RunnerScaleSet
	session *scaleset.MessageSessionClient
	jit     *scaleset.RunnerScaleSetJitRunnerConfig
}

func newPool(t *testing.T, sim *githubsim.Running) pool {
	t.Helper()
	p := pool{client: newClient(t, sim, "acme")}
	p.set = newSet(t, p.client)
	p.session = openSession(t, p.client, p.set.ID)
	jit, err := p.client.GenerateJitRunnerConfig(testContext(t), &scaleset.RunnerScaleSetJitRunnerSetting{Name: "r1"}, p.set.ID)
	if err != nil {
		t.Fatal(err)
	}
	p.jit = jit
	return p
}

type ending struct {
	code int
	err  error
}

// run starts a runner's process; the returned function ends it.
func run(t *testing.T, config string) (chan ending, context.CancelFunc) {
	t.Helper()
	ctx, cancel := context.WithCancel(testContext(t))
	ended := make(chan ending, 1)
	go func() {
		code, err := simrunner.Run(ctx, config)
		ended <- ending{code, err}
	}()
	return ended, cancel
}

func online(sim *githubsim.Running) func() bool {
	return func() bool {
		runners := sim.Report().Runners
		return len(runners) == 1 && runners[0].Online
	}
}

func jobRuns(sim *githubsim.Running) func() bool {
	return func() bool { return sim.Jobs()[0].State == githubsim.JobRunning }
}

func TestRunnerDoesItsJobAndIsForgotten(t *testing.T) {
	sim := start(t, githubsim.Options{})
	p := newPool(t, sim)
	job := addJob(t, sim, githubsim.Job{Duration: time.Millisecond})
	after := poll(t, p.session, 0, 1).MessageID
	ended, _ := run(t, p.jit.EncodedJITConfig)
	started := poll(t, p.session, after, 1)
	if len(started.JobStartedMessages) != 1 || started.JobStartedMessages[0].RunnerName != "r1" ||
		started.JobStartedMessages[0].RunnerID != p.jit.Runner.ID || started.JobStartedMessages[0].JobID != job {
		t.Fatalf("started: %+v", started)
	}
	completed := started
	if len(started.JobCompletedMessages) == 0 {
		completed = poll(t, p.session, started.MessageID, 1)
	}
	if len(completed.JobCompletedMessages) != 1 || completed.JobCompletedMessages[0].Result != "succeeded" {
		t.Errorf("completed: %+v", completed)
	}
	if end := <-ended; end.code != simrunner.ExitOK || end.err != nil {
		t.Errorf("the process ended with %+v", end)
	}
	if left := sim.Report().Runners; len(left) != 0 {
		t.Errorf("still registered: %+v", left)
	}
	if end := runToEnd(t, p.jit.EncodedJITConfig); end.code != simrunner.ExitTerminated {
		t.Errorf("a process with the used configuration ended with %+v", end)
	}
}

func TestARunnerThatRunsScriptsTellsHowTheyEnd(t *testing.T) {
	for name, tc := range map[string]struct {
		script      func(ctx context.Context, script string) (string, error)
		result, log string
	}{
		"well":             {func(_ context.Context, script string) (string, error) { return "did " + script, nil }, githubsim.ResultSucceeded, "did make"},
		"with an error":    {func(context.Context, string) (string, error) { return "tried", errors.New("exit status 2") }, githubsim.ResultFailed, "tried\nexit status 2"},
		"without a script": {nil, githubsim.ResultFailed, "this runner runs no scripts"},
	} {
		t.Run(name, func(t *testing.T) {
			sim := start(t, githubsim.Options{})
			p := newPool(t, sim)
			addJob(t, sim, githubsim.Job{Script: "make"})
			poll(t, p.session, 0, 1)
			code, err := simrunner.Hooks{Script: tc.script}.Run(testContext(t), p.jit.EncodedJITConfig)
			if code != simrunner.ExitOK || err != nil {
				t.Errorf("the process ended with %d, %v", code, err)
			}
			if j := sim.Jobs()[0]; j.Result != tc.result || j.Log != tc.log {
				t.Errorf("the job %s and wrote %q", j.Result, j.Log)
			}
		})
	}
}

func TestACancelledScriptIsStopped(t *testing.T) {
	sim := start(t, githubsim.Options{})
	p := newPool(t, sim)
	job := addJob(t, sim, githubsim.Job{Script: "make"})
	poll(t, p.session, 0, 1)
	hooks := simrunner.Hooks{Script: func(ctx context.Context, _ string) (string, error) {
		sim.CancelJob(job)
		<-ctx.Done()
		return "", ctx.Err()
	}}
	if code, err := hooks.Run(testContext(t), p.jit.EncodedJITConfig); code != simrunner.ExitOK || err != nil {
		t.Errorf("the process ended with %d, %v", code, err)
	}
	if j := sim.Jobs()[0]; j.Result != githubsim.ResultCanceled {
		t.Errorf("the job %s", j.Result)
	}
}

func TestAJobThatIsCutShortEndsWithItsResult(t *testing.T) {
	sim := start(t, githubsim.Options{})
	p := newPool(t, sim)
	job := addJob(t, sim, githubsim.Job{Duration: time.Hour})
	if sim.CutShort(job) {
		t.Error("it doesn't run yet")
	}
	poll(t, p.session, 0, 1)
	ended, _ := run(t, p.jit.EncodedJITConfig)
	waitUntil(t, sim, func() bool { return sim.CutShort(job) })
	if end := <-ended; end.code != simrunner.ExitOK || end.err != nil {
		t.Errorf("the process ended with %+v", end)
	}
	if j := sim.Jobs()[0]; j.Result != githubsim.ResultSucceeded {
		t.Errorf("the job %s", j.Result)
	}
}

func runToEnd(t *testing.T, config string) ending {
	t.Helper()
	ended, _ := run(t, config)
	return <-ended
}

func TestSecondProcessWithTheSameConfigurationConflicts(t *testing.T) {
	sim := start(t, githubsim.Options{})
	p := newPool(t, sim)
	ended, stop := run(t, p.jit.EncodedJITConfig)
	waitUntil(t, sim, online(sim))
	if end := runToEnd(t, p.jit.EncodedJITConfig); end.code != simrunner.ExitSessionConflict {
		t.Errorf("the second process ended with %+v", end)
	}
	stop()
	if end := <-ended; end.code != simrunner.ExitOK {
		t.Errorf("the first process ended with %+v", end)
	}
	waitUntil(t, sim, func() bool { return !online(sim)() })
	if got := sim.Report(); len(got.Runners) != 1 || !got.Runners[0].Ended || len(got.Broken) != 0 {
		t.Errorf("an idle runner that ends stays registered and breaks nothing: %+v", got)
	}
}

func TestIdleRunnerEndsWhenItsRegistrationIsRemoved(t *testing.T) {
	for name, remove := range map[string]func(*githubsim.Running, pool) error{
		"by its owner": func(_ *githubsim.Running, p pool) error {
			return p.client.RemoveRunner(t.Context(), int64(p.jit.Runner.ID))
		},
		"behind its back": func(sim *githubsim.Running, p pool) error { sim.PurgeRunner(p.jit.Runner.ID); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			sim := start(t, githubsim.Options{})
			p := newPool(t, sim)
			ended, _ := run(t, p.jit.EncodedJITConfig)
			waitUntil(t, sim, online(sim))
			if err := remove(sim, p); err != nil {
				t.Fatal(err)
			}
			if end := <-ended; end.code != simrunner.ExitTerminated || simrunner.ContainerExitCode(end.code, true) != 0 {
				t.Errorf("the process ended with %+v", end)
			}
		})
	}
}

func TestBusyRunnerCannotBeRemoved(t *testing.T) {
	sim := start(t, githubsim.Options{})
	p := newPool(t, sim)
	id := addJob(t, sim, githubsim.Job{Duration: time.Hour})
	poll(t, p.session, 0, 1)
	ended, _ := run(t, p.jit.EncodedJITConfig)
	waitUntil(t, sim, jobRuns(sim))
	err := p.client.RemoveRunner(testContext(t), int64(p.jit.Runner.ID))
	wantError(t, err, "job still running")
	if sim.PurgeRunner(p.jit.Runner.ID) {
		t.Error("a busy runner was purged")
	}
	if !sim.CancelJob(id) {
		t.Error("the job could not be cancelled")
	}
	if end := <-ended; end.code != simrunner.ExitOK {
		t.Errorf("the process ended with %+v", end)
	}
	if got := sim.Jobs()[0]; got.Result != githubsim.ResultCanceled || len(sim.Invariants()) != 0 {
		t.Errorf("after cancelling: %+v, %v", got, sim.Invariants())
	}
}

func TestEndingABusyRunnerBreaksInvariantsAndFailsTheJob(t *testing.T) {
	clock := newClock()
	sim := start(t, githubsim.Options{Clock: clock.now, LostAfter: time.Minute})
	p := newPool(t, sim)
	addJob(t, sim, githubsim.Job{Duration: time.Hour})
	poll(t, p.session, 0, 1)
	ended, kill := run(t, p.jit.EncodedJITConfig)
	waitUntil(t, sim, jobRuns(sim))
	kill()
	<-ended
	waitUntil(t, sim, func() bool { return len(sim.Invariants()) == 1 })
	if got := sim.Jobs()[0].State; got != githubsim.JobRunning {
		t.Errorf("the job is %s before communication counts as lost", got)
	}
	clock.advance(61 * time.Second)
	if got := sim.Jobs()[0]; got.State != githubsim.JobCompleted || got.Result != githubsim.ResultFailed {
		t.Errorf("the job after the loss: %+v", got)
	}
	broken := strings.Join(sim.Invariants(), "\n")
	for _, want := range []string{"busy runner ended: r1", "is lost"} {
		if !strings.Contains(broken, want) {
			t.Errorf("broken: %q; want %q", broken, want)
		}
	}
	if err := p.client.RemoveRunner(testContext(t), int64(p.jit.Runner.ID)); err != nil {
		t.Errorf("removing the lost runner: %v", err)
	}
}

func TestCancelledJobNeverReachesARunner(t *testing.T) {
	sim := start(t, githubsim.Options{})
	p := newPool(t, sim)
	queued, assigned := addJob(t, sim, githubsim.Job{Labels: []string{"none"}}), addJob(t, sim, githubsim.Job{})
	after := poll(t, p.session, 0, 1).MessageID
	for _, id := range []string{queued, assigned} {
		if !sim.CancelJob(id) || sim.CancelJob(id) {
			t.Errorf("job %s can be cancelled once", id)
		}
	}
	message := poll(t, p.session, after, 1)
	if len(message.JobCompletedMessages) != 1 || message.JobCompletedMessages[0].RunnerName != "" ||
		message.Statistics.TotalAssignedJobs != 0 {
		t.Errorf("message: %+v", message)
	}
	if err := sim.WaitIdle(testContext(t)); err != nil {
		t.Error(err)
	}
}

func TestStatisticsCountRunners(t *testing.T) {
	sim := start(t, githubsim.Options{})
	p := newPool(t, sim)
	stats := func() githubsim.Statistics { return sim.Report().ScaleSets[0].Statistics }
	if got := stats(); got != (githubsim.Statistics{Registered: 1}) {
		t.Errorf("registered: %+v", got)
	}
	_, stop := run(t, p.jit.EncodedJITConfig)
	waitUntil(t, sim, func() bool { return stats() == githubsim.Statistics{Registered: 1, Idle: 1} })
	addJob(t, sim, githubsim.Job{Duration: time.Hour})
	poll(t, p.session, 0, 1)
	waitUntil(t, sim, func() bool {
		return stats() == githubsim.Statistics{Assigned: 1, Running: 1, Registered: 1, Busy: 1}
	})
	stop()
}

// deliver runs a runner's process until it has a job that it has not acknowledged. The returned function ends the
// process.
func deliver(t *testing.T, sim *githubsim.Running, p pool) (ended chan ending, kill context.CancelFunc) {
	t.Helper()
	sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointRunnerAcknowledge, Times: 1, Hang: true})
	poll(t, p.session, 0, 1)
	ended, kill = run(t, p.jit.EncodedJITConfig)
	waitUntil(t, sim, func() bool { return sim.Report().Requests[githubsim.EndpointRunnerAcknowledge] == 1 })
	return ended, kill
}

func TestJobThatWasNotAcknowledgedGoesToTheNextRunner(t *testing.T) {
	for name, lastWord := range map[string]githubsim.Fault{
		"the first one left":        {Endpoint: githubsim.EndpointUser},
		"the first one fell silent": {Endpoint: githubsim.EndpointRunnerLeave, Times: 1, Status: 503},
	} {
		t.Run(name, func(t *testing.T) {
			clock := newClock()
			sim := start(t, githubsim.Options{Clock: clock.now, AdminTokenTTL: 24 * time.Hour, QueueTokenTTL: 24 * time.Hour})
			p := newPool(t, sim)
			addJob(t, sim, githubsim.Job{})
			second, err := p.client.GenerateJitRunnerConfig(testContext(t), &scaleset.RunnerScaleSetJitRunnerSetting{Name: "r2"}, p.set.ID)
			if err != nil {
				t.Fatal(err)
			}
			sim.AddFault(lastWord)
			ended, kill := deliver(t, sim, p)
			kill()
			<-ended
			clock.advance(2 * time.Minute)
			if end := runToEnd(t, second.EncodedJITConfig); end.code != simrunner.ExitOK {
				t.Errorf("the second process ended with %+v", end)
			}
			if got := sim.Jobs()[0]; got.Runner != "r2" || got.Starts != 1 || len(sim.Invariants()) != 0 {
				t.Errorf("the job: %+v; broken: %v", got, sim.Invariants())
			}
		})
	}
}

func TestCancelledBeforeTheAcknowledgementLeavesTheRunnerIdle(t *testing.T) {
	sim := start(t, githubsim.Options{})
	p := newPool(t, sim)
	id := addJob(t, sim, githubsim.Job{})
	ended, kill := deliver(t, sim, p)
	if !sim.CancelJob(id) {
		t.Error("the job could not be cancelled")
	}
	if got := sim.Report().ScaleSets[0].Statistics; got.Busy != 0 || got.Idle != 1 || got.Assigned != 0 {
		t.Errorf("after cancelling: %+v", got)
	}
	kill()
	<-ended
}

func TestBusyRunnerThatFallsSilentIsLost(t *testing.T) {
	clock := newClock()
	sim := start(t, githubsim.Options{Clock: clock.now, LostAfter: time.Minute})
	p := newPool(t, sim)
	addJob(t, sim, githubsim.Job{Duration: time.Hour})
	poll(t, p.session, 0, 1)
	sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointRunnerLeave, Times: 1, Status: 503})
	ended, kill := run(t, p.jit.EncodedJITConfig)
	waitUntil(t, sim, jobRuns(sim))
	kill()
	<-ended
	waitUntil(t, sim, func() bool {
		clock.advance(61 * time.Second)
		return sim.Jobs()[0].State == githubsim.JobCompleted
	})
	if broken := sim.Invariants(); len(broken) != 2 || !strings.Contains(broken[0], "fell silent") {
		t.Errorf("broken: %v", broken)
	}
}
