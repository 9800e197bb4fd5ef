// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/githubsim/simrunner"
)

// configure registers runner r1 with the organization, as config.sh does, and returns its configuration.
func configure(t *testing.T, sim *githubsim.Running, token string, args ...string) (string, error) {
	t.Helper()
	return simrunner.Hooks{}.Configure(testContext(t), token, append([]string{"--url", sim.ConfigURL("acme"), "--name", "r1", "--labels", "self-hosted,gpu"}, args...))
}

func registrationToken(t *testing.T, sim *githubsim.Running) string {
	t.Helper()
	token, _, err := newREST(t, sim, "secret").Actions.CreateOrganizationRegistrationToken(testContext(t), "acme")
	if err != nil {
		t.Fatal(err)
	}
	return token.GetToken()
}

// stay runs a persistent runner until end is called. The cause is nil for an orderly shutdown.
func stay(t *testing.T, config string) (end func(cause error)) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = simrunner.Hooks{}.Stay(ctx, config)
	}()
	return func(cause error) {
		cancel(cause)
		<-done
	}
}

func TestPersistentRunnerRunsSeveralJobs(t *testing.T) {
	sim := start(t, githubsim.Options{})
	config, err := configure(t, sim, registrationToken(t, sim))
	if err != nil {
		t.Fatal(err)
	}
	end := stay(t, config)
	for range 3 {
		addJob(t, sim, githubsim.Job{Labels: []string{"gpu"}, Duration: time.Millisecond})
	}
	waitUntil(t, sim, func() bool { return sim.Report().Results[githubsim.ResultSucceeded] == 3 })
	end(nil)
	report := sim.Report()
	if len(report.Runners) != 1 || report.Runners[0].Online || report.RunnersMade != 1 || len(report.Broken) != 0 {
		t.Errorf("report: %+v", report)
	}
	for _, j := range sim.Jobs() {
		if j.Runner != "r1" || j.Starts != 1 {
			t.Errorf("job: %+v", j)
		}
	}
	listed, _, err := newREST(t, sim, "secret").Actions.GetOrganizationRunner(testContext(t), "acme", int64(report.Runners[0].ID))
	if err != nil || listed.GetEphemeral() {
		t.Errorf("listed: %+v, %v", listed, err)
	}
}

// If the runner's process is killed during a job, the job fails. The next process of the runner does not get it.
func TestRestartedPersistentRunnerDoesNotResumeItsJob(t *testing.T) {
	sim := start(t, githubsim.Options{SessionExpiry: time.Second, LostAfter: 5 * time.Second})
	config, err := configure(t, sim, registrationToken(t, sim))
	if err != nil {
		t.Fatal(err)
	}
	lost := addJob(t, sim, githubsim.Job{Labels: []string{"gpu"}, Duration: time.Hour})
	end := stay(t, config)
	waitUntil(t, sim, func() bool { return sim.Report().Jobs[githubsim.JobRunning] == 1 })
	sim.Excuse("r1")
	end(errors.New("killed"))
	addJob(t, sim, githubsim.Job{Labels: []string{"gpu"}, Duration: time.Millisecond})
	again := stay(t, config)
	waitUntil(t, sim, func() bool { return sim.Report().Results[githubsim.ResultSucceeded] == 1 })
	again(nil)
	if jobs := sim.Jobs(); jobs[0].ID != lost || jobs[0].Result != githubsim.ResultFailed || jobs[0].Starts != 1 {
		t.Errorf("jobs: %+v", jobs)
	}
	if broken := sim.Invariants(); len(broken) != 0 {
		t.Errorf("broken: %v", broken)
	}
	addJob(t, sim, githubsim.Job{Labels: []string{"gpu"}, Duration: time.Hour})
	end = stay(t, config)
	waitUntil(t, sim, func() bool { return sim.Report().Jobs[githubsim.JobRunning] == 1 })
	end(errors.New("killed without an excuse"))
	waitUntil(t, sim, func() bool { return sim.Report().Results[githubsim.ResultFailed] == 2 })
	if broken := sim.Invariants(); len(broken) != 2 {
		t.Errorf("want two broken invariants, because the excuse applies only to the first process, got %v", broken)
	}
}

func TestRegistrationOfPersistentRunners(t *testing.T) {
	sim := start(t, githubsim.Options{})
	sim.AddOrg("other")
	if _, err := configure(t, sim, "wrong"); err == nil {
		t.Error("a wrong token was accepted")
	}
	if _, err := configure(t, sim, registrationToken(t, sim), "--runnergroup", "none"); err == nil {
		t.Error("a runner group that does not exist was accepted")
	}
	elsewhere := []string{"--url", sim.ConfigURL("other"), "--name", "r1", "--labels", "gpu"}
	if _, err := (simrunner.Hooks{}).Configure(testContext(t), registrationToken(t, sim), elsewhere); err == nil {
		t.Error("the token of one organization was accepted for another")
	}
	for range 2 { // the second registration replaces the first
		if _, err := configure(t, sim, registrationToken(t, sim), "--runnergroup", "Default"); err != nil {
			t.Fatal(err)
		}
	}
	if r := sim.Report(); len(r.Runners) != 1 || r.Runners[0].ID != 1 {
		t.Errorf("runners: %+v", r.Runners)
	}
}
