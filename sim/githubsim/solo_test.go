// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-github/v89/github"

	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/githubsim/simrunner"
)

// newREST returns a client of the REST API with the token.
func newREST(t *testing.T, sim *githubsim.Running, token string) *github.Client {
	t.Helper()
	client, err := github.NewClient(github.WithAuthToken(token), github.WithEnterpriseURLs(sim.URL, sim.URL))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// newSolo registers a runner of the organization with the REST API.
func newSolo(t *testing.T, sim *githubsim.Running, name string, groupID int64, labels ...string) *github.JITRunnerConfig {
	t.Helper()
	jit, _, err := newREST(t, sim, "secret").Actions.CreateOrgJITConfig(testContext(t), "acme",
		github.CreateJITConfigRequest{Name: name, RunnerGroupID: groupID, Labels: labels})
	if err != nil {
		t.Fatal(err)
	}
	return jit
}

func TestRESTRunnerDoesOneJobAndIsForgotten(t *testing.T) {
	sim := start(t, githubsim.Options{})
	id := addJob(t, sim, githubsim.Job{Labels: []string{"self-hosted", "GPU"}, Duration: time.Millisecond})
	other := addJob(t, sim, githubsim.Job{Labels: []string{"gpu", "large"}})
	jit := newSolo(t, sim, "r1", 1, "self-hosted", "linux", "gpu")
	if jit.GetRunner().GetName() != "r1" || jit.GetRunner().GetStatus() != "offline" || len(jit.GetRunner().Labels) != 3 {
		t.Fatalf("runner: %+v", jit.GetRunner())
	}
	if end := runToEnd(t, jit.GetEncodedJITConfig()); end.code != simrunner.ExitOK || end.err != nil {
		t.Fatalf("the process ended with %+v", end)
	}
	report, jobs := sim.Report(), sim.Jobs()
	if jobs[0].ID != id || jobs[0].Result != "succeeded" || jobs[0].Runner != "r1" || jobs[1].ID != other || jobs[1].State != githubsim.JobQueued {
		t.Errorf("jobs: %+v", jobs)
	}
	if len(report.Runners) != 0 || len(report.Broken) != 0 || report.RunnersMade != 1 {
		t.Errorf("report: %+v", report)
	}
}

func TestRESTRunnerWaitsForAJobOfItsScopeGroupAndLabels(t *testing.T) {
	sim := start(t, githubsim.Options{})
	group := sim.AddRunnerGroup("acme", githubsim.Group{Name: "lib", Visibility: "selected", Repositories: []string{"acme/lib"}})
	jit := newSolo(t, sim, "r1", int64(group), "linux")
	ended, _ := run(t, jit.GetEncodedJITConfig())
	waitUntil(t, sim, online(sim))
	addJob(t, sim, githubsim.Job{Repository: "acme/app"})                              // not visible to the group
	addJob(t, sim, githubsim.Job{Repository: "other/lib"})                             // of another organization
	addJob(t, sim, githubsim.Job{Repository: "acme/lib", Labels: []string{"windows"}}) // another label
	mine := addJob(t, sim, githubsim.Job{Repository: "acme/lib", Duration: time.Millisecond})
	if end := <-ended; end.code != simrunner.ExitOK {
		t.Fatalf("the process ended with %+v", end)
	}
	for i, job := range sim.Jobs() {
		if done := job.State == githubsim.JobCompleted; done != (job.ID == mine) {
			t.Errorf("job %d: %+v", i, job)
		}
	}
}

func TestBusyRESTRunnerIsNotDeletedAndAnIdleOneIs(t *testing.T) {
	sim := start(t, githubsim.Options{})
	rest := newREST(t, sim, "secret").Actions
	busy, idle := newSolo(t, sim, "busy", 1, "linux"), newSolo(t, sim, "idle", 1, "windows")
	ended, _ := run(t, busy.GetEncodedJITConfig())
	ended2, _ := run(t, idle.GetEncodedJITConfig())
	addJob(t, sim, githubsim.Job{Duration: time.Hour})
	waitUntil(t, sim, func() bool { return jobRuns(sim)() && sim.Report().Runners[1].Online })
	listed, _, err := rest.ListOrganizationRunners(testContext(t), "acme", nil)
	if err != nil || listed.TotalCount != 2 || !listed.Runners[0].GetBusy() || listed.Runners[1].GetBusy() {
		t.Errorf("runners: %+v, %v", listed, err)
	}
	resp, err := rest.RemoveOrganizationRunner(testContext(t), "acme", busy.GetRunner().GetID())
	if err == nil || resp.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("deleting a busy runner: %v", err)
	}
	if _, err := rest.RemoveOrganizationRunner(testContext(t), "acme", idle.GetRunner().GetID()); err != nil {
		t.Error(err)
	}
	if end := <-ended2; end.code != simrunner.ExitTerminated {
		t.Errorf("the deleted runner's process ended with %+v", end)
	}
	sim.CancelJob(sim.Jobs()[0].ID)
	<-ended
}

func TestJobOfARESTRunnerThatLeavesGoesToTheNext(t *testing.T) {
	sim := start(t, githubsim.Options{})
	release := sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointRunnerAcknowledge, Hang: true})
	ctx, kill := context.WithCancelCause(testContext(t))
	first := newSolo(t, sim, "first", 1, "linux")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = simrunner.Run(ctx, first.GetEncodedJITConfig())
	}()
	waitUntil(t, sim, online(sim))
	addJob(t, sim, githubsim.Job{Duration: time.Millisecond})
	waitUntil(t, sim, func() bool { return sim.Jobs()[0].State == githubsim.JobAssigned })
	kill(context.DeadlineExceeded)
	<-ended
	release()
	sim.EndRunnerSession("first")
	if end := runToEnd(t, newSolo(t, sim, "second", 1, "linux").GetEncodedJITConfig()); end.code != simrunner.ExitOK {
		t.Fatalf("the second process ended with %+v", end)
	}
	if job := sim.Jobs()[0]; job.Runner != "second" || len(sim.Invariants()) != 0 {
		t.Errorf("job: %+v, %v", job, sim.Invariants())
	}
}

func TestBadRequestsForARunner(t *testing.T) {
	sim := start(t, githubsim.Options{})
	sim.AddToken("reader", "organization_self_hosted_runners:read")
	newSolo(t, sim, "taken", 1, "linux")
	for name, tc := range map[string]struct {
		token, body string
		want        int
	}{
		"no permission": {"reader", `{"name":"r","runner_group_id":1,"labels":["linux"]}`, 403},
		"no labels":     {"secret", `{"name":"r","runner_group_id":1}`, 422},
		"no name":       {"secret", `{"runner_group_id":1,"labels":["linux"]}`, 422},
		"many labels":   {"secret", `{"name":"r","runner_group_id":1,"labels":["l"` + strings.Repeat(`,"l"`, 100) + `]}`, 422},
		"no such group": {"secret", `{"name":"r","runner_group_id":7,"labels":["linux"]}`, 404},
		"a name twice":  {"secret", `{"name":"Taken","runner_group_id":1,"labels":["linux"]}`, 409},
		"not JSON":      {"secret", `{`, 400},
	} {
		t.Run(name, func(t *testing.T) {
			var body map[string]any
			url := sim.URL + "/api/v3/orgs/acme/actions/runners/generate-jitconfig"
			if got := post(t, url, "Bearer "+tc.token, tc.body, &body); got != tc.want {
				t.Errorf("%d %v, want %d", got, body, tc.want)
			}
		})
	}
}

func TestJobWithoutARegisteredRunnerFails(t *testing.T) {
	sim := start(t, githubsim.Options{FailWithoutRunner: true})
	addJob(t, sim, githubsim.Job{})
	newSolo(t, sim, "placeholder", 1, "linux")
	addJob(t, sim, githubsim.Job{})
	if jobs := sim.Jobs(); jobs[0].Result != githubsim.ResultFailed || jobs[1].State != githubsim.JobQueued {
		t.Errorf("jobs: %+v", jobs)
	}
}

func TestUnusedRegistrationExpires(t *testing.T) {
	clock := newClock()
	sim := start(t, githubsim.Options{Clock: clock.now, OfflineTTL: 24 * time.Hour})
	newSolo(t, sim, "r1", 1, "linux")
	clock.advance(23 * time.Hour)
	before := len(sim.Report().Runners)
	clock.advance(time.Hour)
	if after := len(sim.Report().Runners); before != 1 || after != 0 {
		t.Errorf("registered: %d after 23 hours, %d after a day", before, after)
	}
}
