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
	"github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/githubsim/simrunner"
)

func TestStatusFaultHitsEveryEndpointOfTheClient(t *testing.T) {
	for endpoint, call := range map[githubsim.Endpoint]func(context.Context, pool) error{
		githubsim.EndpointFindScaleSet: func(ctx context.Context, p pool) error {
			_, err := p.client.GetRunnerScaleSet(ctx, 1, "pool")
			return err
		},
		githubsim.EndpointGetScaleSet: func(ctx context.Context, p pool) error {
			_, err := p.client.GetRunnerScaleSetByID(ctx, p.set.ID)
			return err
		},
		githubsim.EndpointCreateScaleSet: func(ctx context.Context, p pool) error {
			_, err := p.client.CreateRunnerScaleSet(ctx, &scaleset.RunnerScaleSet{Name: "second", RunnerGroupID: 1})
			return err
		},
		githubsim.EndpointUpdateScaleSet: func(ctx context.Context, p pool) error {
			_, err := p.client.UpdateRunnerScaleSet(ctx, p.set.ID, p.set)
			return err
		},
		githubsim.EndpointFindGroup: func(ctx context.Context, p pool) error {
			_, err := p.client.GetRunnerGroupByName(ctx, "default")
			return err
		},
		githubsim.EndpointJITConfig: func(ctx context.Context, p pool) error {
			_, err := p.client.GenerateJitRunnerConfig(ctx, &scaleset.RunnerScaleSetJitRunnerSetting{Name: "r2"}, p.set.ID)
			return err
		},
		githubsim.EndpointGetAgent: func(ctx context.Context, p pool) error {
			_, err := p.client.GetRunner(ctx, p.jit.Runner.ID)
			return err
		},
		githubsim.EndpointFindAgent: func(ctx context.Context, p pool) error {
			_, err := p.client.GetRunnerByName(ctx, "r1")
			return err
		},
		githubsim.EndpointDeleteAgent: func(ctx context.Context, p pool) error {
			return p.client.RemoveRunner(ctx, int64(p.jit.Runner.ID))
		},
		githubsim.EndpointGetMessage: func(ctx context.Context, p pool) error {
			_, err := p.session.GetMessage(ctx, 0, 1)
			return err
		},
		githubsim.EndpointDeleteMessage: func(ctx context.Context, p pool) error {
			return p.session.DeleteMessage(ctx, 1)
		},
		githubsim.EndpointAcquireJobs: func(ctx context.Context, p pool) error {
			_, err := p.session.AcquireJobs(ctx, []int64{1})
			return err
		},
		githubsim.EndpointDeleteSession: func(ctx context.Context, p pool) error {
			return p.session.Close(ctx)
		},
		githubsim.EndpointDeleteScaleSet: func(ctx context.Context, p pool) error {
			return p.client.DeleteRunnerScaleSet(ctx, p.set.ID)
		},
	} {
		t.Run(string(endpoint), func(t *testing.T) {
			sim := start(t, githubsim.Options{Mode: githubsim.Acquire, Hold: time.Millisecond})
			p := newPool(t, sim)
			sim.AddFault(githubsim.Fault{
				Endpoint: endpoint, Times: 1, Status: 418, Body: "out of tea", ContentType: "text/plain",
			})
			wantError(t, call(testContext(t), p), "418", "out of tea")
			if err := call(testContext(t), p); err != nil {
				t.Errorf("after the fault: %v", err)
			}
		})
	}
}

func TestStatusFaultBeforeTheActionsService(t *testing.T) {
	for _, endpoint := range []githubsim.Endpoint{githubsim.EndpointRegistrationToken, githubsim.EndpointRunnerRegistration} {
		sim := start(t, githubsim.Options{})
		sim.AddFault(githubsim.Fault{Endpoint: endpoint, Skip: 1, Status: 422})
		if _, err := newClient(t, sim, "acme").GetRunnerScaleSet(testContext(t), 1, "pool"); err != nil {
			t.Errorf("%s: the first call was to be let through: %v", endpoint, err)
		}
		_, err := newClient(t, sim, "acme").GetRunnerScaleSet(testContext(t), 1, "pool")
		wantError(t, err, "422")
		sim.ClearFaults()
		if _, err := newClient(t, sim, "acme").GetRunnerScaleSet(testContext(t), 1, "pool"); err != nil {
			t.Errorf("%s: after clearing: %v", endpoint, err)
		}
	}
}

func TestRetryAfterIsSent(t *testing.T) {
	sim := start(t, githubsim.Options{})
	sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointUser, Status: 429, RetryAfter: 7 * time.Second, Body: `{"message":"slow down"}`})
	status, header, body := ask(t, sim, "GET", "/user", "secret")
	if status != 429 || header.Get("Retry-After") != "7" || body["message"] != "slow down" {
		t.Errorf("%d %q %v", status, header.Get("Retry-After"), body)
	}
}

func TestLostAnswerLeavesTheChange(t *testing.T) {
	for name, status := range map[string]int{"connection cut": 0, "bad gateway": 502} {
		t.Run(name, func(t *testing.T) {
			sim := start(t, githubsim.Options{})
			ctx := testContext(t)
			p := newPool(t, sim)
			for _, endpoint := range []githubsim.Endpoint{githubsim.EndpointJITConfig, githubsim.EndpointCreateScaleSet} {
				sim.AddFault(githubsim.Fault{Endpoint: endpoint, Times: 1, DropAnswer: true, Status: status})
			}
			setting := &scaleset.RunnerScaleSetJitRunnerSetting{Name: "r2"}
			if _, err := p.client.GenerateJitRunnerConfig(ctx, setting, p.set.ID); err == nil {
				t.Error("the answer was to be lost")
			}
			if _, err := p.client.GenerateJitRunnerConfig(ctx, setting, p.set.ID); !errors.Is(err, scaleset.RunnerExistsError) {
				t.Errorf("the second try: %v", err)
			}
			set := &scaleset.RunnerScaleSet{Name: "second", RunnerGroupID: 1}
			if _, err := p.client.CreateRunnerScaleSet(ctx, set); err == nil {
				t.Error("the answer was to be lost")
			}
			if found, err := p.client.GetRunnerScaleSet(ctx, 1, "second"); found == nil || err != nil {
				t.Errorf("the scale set whose answer was lost: %v, %v", found, err)
			}
		})
	}
}

func TestLostAnswerToASessionConflictsWithOneself(t *testing.T) {
	sim := start(t, githubsim.Options{})
	client := newClient(t, sim, "acme")
	set := newSet(t, client)
	sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointCreateSession, Times: 1, DropAnswer: true})
	if _, err := client.MessageSessionClient(testContext(t), set.ID, "me"); err == nil {
		t.Error("the answer was to be lost")
	}
	_, err := client.MessageSessionClient(testContext(t), set.ID, "me")
	wantError(t, err, "409", "already has an active session")
}

func TestHangingCallEndsWithItsCallerOnly(t *testing.T) {
	sim := start(t, githubsim.Options{})
	p := newPool(t, sim)
	sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointGetAgent, Times: 1, Hang: true})
	ctx, leave := context.WithCancel(testContext(t))
	ended := make(chan error, 1)
	go func() {
		_, err := p.client.GetRunner(ctx, p.jit.Runner.ID)
		ended <- err
	}()
	waitUntil(t, sim, func() bool { return sim.Report().Requests[githubsim.EndpointGetAgent] == 1 })
	leave()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the call ended with %v", err)
	}
}

func TestDelayedCallIsAnsweredAfterAll(t *testing.T) {
	sim := start(t, githubsim.Options{Latency: time.Millisecond})
	p := newPool(t, sim)
	sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointGetAgent, Times: 1, Delay: 20 * time.Millisecond})
	before := time.Now()
	if _, err := p.client.GetRunner(testContext(t), p.jit.Runner.ID); err != nil {
		t.Error(err)
	}
	if took := time.Since(before); took < 20*time.Millisecond {
		t.Errorf("answered after %s", took)
	}
}

func TestSessionFaults(t *testing.T) {
	sim := start(t, githubsim.Options{})
	client := newClient(t, sim, "acme")
	set := newSet(t, client)
	for how, spoiled := range map[githubsim.Alteration]func(scaleset.RunnerScaleSetSession) bool{
		githubsim.AlterEmptyQueueURL: func(s scaleset.RunnerScaleSetSession) bool { return s.MessageQueueURL == "" },
		githubsim.AlterNoStatistics:  func(s scaleset.RunnerScaleSetSession) bool { return s.Statistics == nil },
		githubsim.AlterByteOrderMark: func(s scaleset.RunnerScaleSetSession) bool { return s.MessageQueueURL != "" },
	} {
		sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointCreateSession, Times: 1, Alter: how})
		session := openSession(t, client, set.ID)
		if !spoiled(session.Session()) {
			t.Errorf("%s: %+v", how, session.Session())
		}
		if err := session.Close(testContext(t)); err != nil {
			t.Error(err)
		}
	}
}

func TestMessageFaults(t *testing.T) {
	for how, check := range map[githubsim.Alteration]func(*scaleset.RunnerScaleSetMessage, error) bool{
		githubsim.AlterUnknownOuterType: func(_ *scaleset.RunnerScaleSetMessage, err error) bool { return err != nil },
		githubsim.AlterUnknownInnerType: func(m *scaleset.RunnerScaleSetMessage, err error) bool {
			return err == nil && len(m.JobAssignedMessages) == 2
		},
		githubsim.AlterDuplicate: func(m *scaleset.RunnerScaleSetMessage, err error) bool {
			return err == nil && len(m.JobAssignedMessages) == 4
		},
		githubsim.AlterReorder: func(m *scaleset.RunnerScaleSetMessage, err error) bool {
			return err == nil && m.JobAssignedMessages[0].QueueTime.After(m.JobAssignedMessages[1].QueueTime)
		},
		githubsim.AlterZeroStatistics: func(m *scaleset.RunnerScaleSetMessage, err error) bool {
			return err == nil && *m.Statistics == scaleset.RunnerScaleSetStatistic{}
		},
		githubsim.AlterNoStatistics: func(m *scaleset.RunnerScaleSetMessage, err error) bool {
			return err == nil && m.Statistics == nil
		},
	} {
		t.Run(string(how), func(t *testing.T) {
			clock := newClock()
			sim := start(t, githubsim.Options{Clock: clock.now})
			p := newPool(t, sim)
			addJob(t, sim, githubsim.Job{})
			clock.advance(time.Second)
			addJob(t, sim, githubsim.Job{})
			sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointGetMessage, Times: 1, Alter: how})
			message, err := p.session.GetMessage(testContext(t), 0, 2)
			if !check(message, err) {
				t.Errorf("got %+v, %v", message, err)
			}
			if again := poll(t, p.session, 0, 2); len(again.JobAssignedMessages) != 2 {
				t.Errorf("after the fault: %+v", again)
			}
		})
	}
}

func TestDeletedMessageComesBack(t *testing.T) {
	sim := start(t, githubsim.Options{})
	p := newPool(t, sim)
	addJob(t, sim, githubsim.Job{})
	first := poll(t, p.session, 0, 1)
	sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointDeleteMessage, Times: 1, Alter: githubsim.AlterDuplicate})
	if err := p.session.DeleteMessage(testContext(t), first.MessageID); err != nil {
		t.Fatal(err)
	}
	second := poll(t, p.session, first.MessageID, 1)
	if second.MessageID <= first.MessageID || second.JobAssignedMessages[0].JobID != first.JobAssignedMessages[0].JobID {
		t.Errorf("came back as %+v", second)
	}
}

func TestRunnerThatSeemsBusyIsNotDeleted(t *testing.T) {
	sim := start(t, githubsim.Options{})
	p := newPool(t, sim)
	for _, endpoint := range []githubsim.Endpoint{githubsim.EndpointDeleteAgent, githubsim.EndpointDeleteRunner} {
		sim.AddFault(githubsim.Fault{Endpoint: endpoint, Times: 1, Alter: githubsim.AlterJobStillRunning})
	}
	err := p.client.RemoveRunner(testContext(t), int64(p.jit.Runner.ID))
	if !errors.Is(err, scaleset.JobStillRunningError) {
		t.Errorf("removal: %v", err)
	}
	if status, _, _ := ask(t, sim, "DELETE", "/orgs/acme/actions/runners/1", "secret"); status != 422 {
		t.Errorf("REST removal: %d", status)
	}
	if len(sim.Report().Runners) != 1 {
		t.Error("the runner is gone")
	}
}

func TestRunnerSurvivesLostAnswers(t *testing.T) {
	sim := start(t, githubsim.Options{})
	p := newPool(t, sim)
	addJob(t, sim, githubsim.Job{})
	poll(t, p.session, 0, 1)
	for _, endpoint := range []githubsim.Endpoint{githubsim.EndpointRunnerAcknowledge, githubsim.EndpointRunnerComplete} {
		sim.AddFault(githubsim.Fault{Endpoint: endpoint, Times: 1, DropAnswer: true, Status: 502})
	}
	if end := runToEnd(t, p.jit.EncodedJITConfig); end.code != simrunner.ExitOK || end.err != nil {
		t.Errorf("the process ended with %+v", end)
	}
	if got := sim.Jobs()[0]; got.Starts != 1 || got.Result != githubsim.ResultSucceeded || len(sim.Invariants()) != 0 {
		t.Errorf("the job: %+v, broken: %v", got, sim.Invariants())
	}
}

func TestFaultHitsOneScaleSetByChance(t *testing.T) {
	sim := start(t, githubsim.Options{Seed: 1})
	p := newPool(t, sim)
	get := func() error {
		_, err := p.client.GetRunnerScaleSetByID(testContext(t), p.set.ID)
		return err
	}
	sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointGetScaleSet, ScaleSet: "another", Status: 500})
	if err := get(); err != nil {
		t.Errorf("another scale set's fault: %v", err)
	}
	remove := sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointGetScaleSet, ScaleSet: "pool", Status: 500, Probability: 0.5})
	failed := 0
	for range 40 {
		if get() != nil {
			failed++
		}
	}
	if failed < 10 || failed > 30 {
		t.Errorf("of 40 calls %d failed", failed)
	}
	hits := sim.FaultsHit()
	if len(hits) != failed || hits[0].ScaleSet != "pool" || hits[0].Fault != "get-scale-set of pool status 500 p=0.50" {
		t.Errorf("told of %d hits, the first %+v", len(hits), hits[0])
	}
	remove()
	for range 10 {
		if err := get(); err != nil {
			t.Errorf("after the fault: %v", err)
		}
	}
}

func TestFaultOfAScaleSetHitsItsCallsOnly(t *testing.T) {
	sim := start(t, githubsim.Options{Hold: time.Millisecond})
	p := newPool(t, sim)
	ctx := testContext(t)
	for endpoint, call := range map[githubsim.Endpoint]func() error{
		githubsim.EndpointGetMessage: func() error { _, err := p.session.GetMessage(ctx, 0, 1); return err },
		githubsim.EndpointGetAgent:   func() error { _, err := p.client.GetRunner(ctx, p.jit.Runner.ID); return err },
		githubsim.EndpointFindAgent:  func() error { _, err := p.client.GetRunnerByName(ctx, "r1"); return err },
		githubsim.EndpointFindScaleSet: func() error {
			_, err := p.client.GetRunnerScaleSet(ctx, 1, "pool")
			return err
		},
		githubsim.EndpointDeleteMessage: func() error { return p.session.DeleteMessage(ctx, 1) },
	} {
		sim.AddFault(githubsim.Fault{Endpoint: endpoint, ScaleSet: "another", Status: 500})
		if err := call(); err != nil {
			t.Errorf("%s, another's fault: %v", endpoint, err)
		}
		sim.AddFault(githubsim.Fault{Endpoint: endpoint, ScaleSet: "pool", Status: 500})
		if call() == nil {
			t.Errorf("%s, its own fault: no error", endpoint)
		}
	}
}

func TestSecondaryLimitIsWordedAsGitHubDoes(t *testing.T) {
	sim := start(t, githubsim.Options{})
	sim.AddFault(githubsim.SecondaryLimit(githubsim.EndpointUser, 3*time.Second))
	status, header, body := ask(t, sim, "GET", "/user", "secret")
	message, _ := body["message"].(string)
	if status != 403 || header.Get("Retry-After") != "3" || !strings.HasPrefix(message, "You have exceeded a secondary rate limit") {
		t.Errorf("%d %q %v", status, header.Get("Retry-After"), body)
	}
}

func TestMessagesOutOfOrderAndAgain(t *testing.T) {
	sim := start(t, githubsim.Options{})
	p := newPool(t, sim)
	var ids []string
	for range 3 {
		ids = append(ids, addJob(t, sim, githubsim.Job{}))
	}
	sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointGetMessage, Times: 1, Alter: githubsim.AlterOutOfOrder})
	newer := poll(t, p.session, 0, 3)
	older := poll(t, p.session, newer.MessageID, 3)
	var got []string
	for _, m := range append(newer.JobAssignedMessages, older.JobAssignedMessages...) {
		got = append(got, m.JobID)
	}
	if diff := cmp.Diff([]string{ids[1], ids[2], ids[0]}, got); diff != "" {
		t.Errorf("the order of jobs (-want +got):\n%s", diff)
	}
	sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointGetMessage, Times: 1, Alter: githubsim.AlterRedeliver})
	if again := poll(t, p.session, older.MessageID, 3); again.MessageID != newer.MessageID {
		t.Errorf("again came message %d, want %d", again.MessageID, newer.MessageID)
	}
}

func TestExcusedEndOfABusyRunnerBreaksNothing(t *testing.T) {
	clock := newClock()
	sim := start(t, githubsim.Options{Clock: clock.now, LostAfter: time.Minute})
	p := newPool(t, sim)
	addJob(t, sim, githubsim.Job{Duration: time.Hour})
	poll(t, p.session, 0, 1)
	ctx, kill := context.WithCancelCause(testContext(t))
	working, ended := make(chan bool), make(chan int)
	go func() {
		code, _ := simrunner.Hooks{Working: func() { close(working) }}.Run(ctx, p.jit.EncodedJITConfig)
		ended <- code
	}()
	<-working
	sim.Excuse("r1")
	kill(errors.New("out of memory"))
	if code := <-ended; code != simrunner.ExitKilled {
		t.Errorf("the process ended with %d", code)
	}
	waitUntil(t, sim, func() bool {
		clock.advance(61 * time.Second)
		return sim.Jobs()[0].Result == githubsim.ResultFailed
	})
	if broken := sim.Invariants(); len(broken) != 0 {
		t.Errorf("broken: %v", broken)
	}
	if n := sim.Report().Requests[githubsim.EndpointRunnerLeave]; n != 0 {
		t.Error("a killed process said goodbye")
	}
}
