// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/actions/scaleset"
	"github.com/actions/scaleset/listener"
	"github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/githubsim/simrunner"
)

// fleet is the simplest scaler: it starts as many runners as wanted, and sometimes more, because the wanted count lags
// behind the end of runners.
type fleet struct {
	t      *testing.T
	life   context.Context
	client *scaleset.Client
	setID  int
	alive  sync.WaitGroup

	mu        sync.Mutex
	running   int
	made      int
	started   []string
	completed []string
	results   map[string]int
}

func (f *fleet) HandleJobStarted(_ context.Context, job *scaleset.JobStarted) error {
	f.started = append(f.started, job.JobID)
	return nil
}

func (f *fleet) HandleJobCompleted(_ context.Context, job *scaleset.JobCompleted) error {
	f.completed = append(f.completed, job.JobID)
	f.results[job.Result]++
	return nil
}

func (f *fleet) HandleDesiredRunnerCount(ctx context.Context, count int) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.running < count {
		f.made++
		jit, err := f.client.GenerateJitRunnerConfig(ctx,
			&scaleset.RunnerScaleSetJitRunnerSetting{Name: fmt.Sprintf("runner-%d", f.made)}, f.setID)
		if err != nil {
			return 0, err
		}
		f.running++
		f.alive.Go(func() { f.run(jit.EncodedJITConfig) })
	}
	return count, nil
}

func (f *fleet) run(config string) {
	code, err := simrunner.Run(f.life, config)
	if code != simrunner.ExitOK {
		f.t.Errorf("runner ended with %d: %v", code, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.running--
}

func TestListenerServesJobsToTheirEnd(t *testing.T) {
	for name, mode := range map[string]githubsim.Mode{
		"github.com": githubsim.AutoAssign, "enterprise server": githubsim.Acquire,
	} {
		t.Run(name, func(t *testing.T) {
			sim := start(t, githubsim.Options{Mode: mode})
			ctx := testContext(t)
			client := newClient(t, sim, "acme")
			set := newSet(t, client)
			const jobs = 60
			for range jobs - 1 {
				addJob(t, sim, githubsim.Job{})
			}
			addJob(t, sim, githubsim.Job{Result: githubsim.ResultFailed})

			life, end := context.WithCancel(ctx)
			defer end()
			f := &fleet{t: t, life: life, client: client, setID: set.ID, results: map[string]int{}}
			session := openSession(t, client, set.ID)
			l, err := listener.New(session, listener.Config{ScaleSetID: set.ID, MaxRunners: 10})
			if err != nil {
				t.Fatal(err)
			}
			listening, stop := context.WithCancel(ctx)
			ended := make(chan error, 1)
			go func() { ended <- l.Run(listening, f) }()

			if err := sim.WaitIdle(ctx); err != nil {
				t.Fatalf("jobs not done: %v; %+v", err, sim.Report())
			}
			waitUntil(t, sim, func() bool { return sim.Report().ScaleSets[0].Messages == 0 })
			stop()
			end()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("listener ended with %v", err)
			}
			f.alive.Wait()
			checkListened(t, sim, f, jobs)
			for _, surplus := range sim.Report().Runners {
				if err := client.RemoveRunner(ctx, int64(surplus.ID)); err != nil {
					t.Error(err)
				}
			}
			if err := session.Close(ctx); err != nil {
				t.Error(err)
			}
			if err := client.DeleteRunnerScaleSet(ctx, set.ID); err != nil {
				t.Error(err)
			}
			if left := append(sim.Leftovers(), sim.Invariants()...); len(left) > 0 {
				t.Errorf("left over or broken: %v", left)
			}
		})
	}
}

func checkListened(t *testing.T, sim *githubsim.Running, f *fleet, jobs int) {
	t.Helper()
	report := sim.Report()
	if diff := cmp.Diff(map[string]int{"succeeded": jobs - 1, "failed": 1}, report.Results); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	for _, job := range sim.Jobs() {
		if job.Starts != 1 || job.Attempts != 1 || job.Runner == "" || job.Finished.Before(job.Started) {
			t.Errorf("odd timeline: %+v", job)
		}
	}
	if len(f.started) > jobs || len(f.completed) > jobs {
		t.Errorf("%d started and %d completed events for %d jobs", len(f.started), len(f.completed), jobs)
	}
}

// The listener ends with every error. It must end with the error of the injected fault, and with no other.
func TestListenerMeetsEachFault(t *testing.T) {
	const served = "" // the jobs finish as if there were no fault
	const gaveUp = "giving up after 1 attempt"
	cases := map[string]struct {
		mode  githubsim.Mode
		fault githubsim.Fault
		want  string // served, or a part of the error that ends the listener
	}{
		"poll answers 500":            {githubsim.AutoAssign, githubsim.Fault{Endpoint: githubsim.EndpointGetMessage, Status: 500}, gaveUp},
		"poll is limited":             {githubsim.AutoAssign, githubsim.Fault{Endpoint: githubsim.EndpointGetMessage, Status: 429, RetryAfter: time.Second}, gaveUp},
		"poll is late":                {githubsim.AutoAssign, githubsim.Fault{Endpoint: githubsim.EndpointGetMessage, Delay: 20 * time.Millisecond}, served},
		"poll loses its answer":       {githubsim.AutoAssign, githubsim.Fault{Endpoint: githubsim.EndpointGetMessage, DropAnswer: true, Status: 502}, gaveUp},
		"unknown message":             {githubsim.AutoAssign, githubsim.Fault{Endpoint: githubsim.EndpointGetMessage, Alter: githubsim.AlterUnknownOuterType}, "unsupported message type"},
		"unknown event":               {githubsim.AutoAssign, githubsim.Fault{Endpoint: githubsim.EndpointGetMessage, Alter: githubsim.AlterUnknownInnerType}, served},
		"events out of order":         {githubsim.AutoAssign, githubsim.Fault{Endpoint: githubsim.EndpointGetMessage, Alter: githubsim.AlterReorder}, served},
		"events twice":                {githubsim.AutoAssign, githubsim.Fault{Endpoint: githubsim.EndpointGetMessage, Alter: githubsim.AlterDuplicate}, served},
		"byte order mark":             {githubsim.AutoAssign, githubsim.Fault{Endpoint: githubsim.EndpointGetMessage, Alter: githubsim.AlterByteOrderMark}, served},
		"acknowledgement answers 503": {githubsim.AutoAssign, githubsim.Fault{Endpoint: githubsim.EndpointDeleteMessage, Status: 503}, gaveUp},
		"deleted message comes back":  {githubsim.AutoAssign, githubsim.Fault{Endpoint: githubsim.EndpointDeleteMessage, Alter: githubsim.AlterDuplicate}, served},
		"acknowledgement lost":        {githubsim.AutoAssign, githubsim.Fault{Endpoint: githubsim.EndpointDeleteMessage, DropAnswer: true, Status: 502}, gaveUp},
		"acquiring answers 500":       {githubsim.Acquire, githubsim.Fault{Endpoint: githubsim.EndpointAcquireJobs, Status: 500}, gaveUp},
		"acquiring is late":           {githubsim.Acquire, githubsim.Fault{Endpoint: githubsim.EndpointAcquireJobs, Delay: 20 * time.Millisecond}, served},
		"registering answers 429":     {githubsim.AutoAssign, githubsim.Fault{Endpoint: githubsim.EndpointJITConfig, Status: 429}, gaveUp},
		"registering is late":         {githubsim.AutoAssign, githubsim.Fault{Endpoint: githubsim.EndpointJITConfig, Delay: 20 * time.Millisecond}, served},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			sim := start(t, githubsim.Options{Mode: tc.mode})
			ctx := testContext(t)
			client := newClient(t, sim, "acme")
			set := newSet(t, client)
			life, end := context.WithCancel(ctx)
			f := &fleet{t: t, life: life, client: client, setID: set.ID, results: map[string]int{}}
			defer f.alive.Wait()
			defer end()
			l, err := listener.New(openSession(t, client, set.ID), listener.Config{ScaleSetID: set.ID, MaxRunners: 10})
			if err != nil {
				t.Fatal(err)
			}
			tc.fault.Times = 1
			sim.AddFault(tc.fault)
			for range 3 {
				addJob(t, sim, githubsim.Job{})
			}
			listening, stop := context.WithCancel(ctx)
			defer stop()
			ended := make(chan error, 1)
			go func() { ended <- l.Run(listening, f) }()
			if tc.want != served {
				wantError(t, <-ended, tc.want)
				return
			}
			if err := sim.WaitIdle(ctx); err != nil {
				t.Errorf("jobs not done: %v; %+v", err, sim.Report())
			}
			stop()
			<-ended
			if broken := sim.Invariants(); len(broken) > 0 {
				t.Errorf("broken: %v", broken)
			}
		})
	}
}

// Session faults happen before the listener's first poll.
func TestListenerMeetsEachFaultOfItsSession(t *testing.T) {
	const gaveUp = "giving up after 1 attempt"
	for name, tc := range map[string]struct {
		fault githubsim.Fault
		want  string
	}{
		"no session":      {githubsim.Fault{Endpoint: githubsim.EndpointCreateSession, Status: 500}, gaveUp},
		"no queue":        {githubsim.Fault{Endpoint: githubsim.EndpointCreateSession, Alter: githubsim.AlterEmptyQueueURL}, "unsupported protocol scheme"},
		"no statistics":   {githubsim.Fault{Endpoint: githubsim.EndpointCreateSession, Alter: githubsim.AlterNoStatistics}, "statistics"},
		"no renewed one":  {githubsim.Fault{Endpoint: githubsim.EndpointRefreshSession, Status: 500}, gaveUp},
		"no admin access": {githubsim.Fault{Endpoint: githubsim.EndpointRunnerRegistration, Status: 404}, "404"},
	} {
		t.Run(name, func(t *testing.T) {
			sim := start(t, githubsim.Options{})
			ctx := testContext(t)
			set := newSet(t, newClient(t, sim, "acme"))
			client := newClient(t, sim, "acme") // has no token yet
			sim.AddFault(tc.fault)
			session, err := client.MessageSessionClient(ctx, set.ID, "cluster/pool")
			if err != nil {
				wantError(t, err, tc.want)
				return
			}
			l, err := listener.New(session, listener.Config{ScaleSetID: set.ID, MaxRunners: 1})
			if err != nil {
				t.Fatal(err)
			}
			sim.ExpireQueueTokens()
			f := &fleet{t: t, life: ctx, client: client, setID: set.ID, results: map[string]int{}}
			wantError(t, l.Run(ctx, f), tc.want)
		})
	}
}
