// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim_test

import (
	"testing"
	"time"

	"github.com/actions/scaleset"

	"github.com/corral-dev/corral/sim/githubsim"
)

func TestJobGoesToAScaleSetThatMayHaveIt(t *testing.T) {
	type tc struct {
		scope  string
		group  *githubsim.Group
		labels []string
		job    githubsim.Job
		public bool
		want   githubsim.JobState
	}
	private := githubsim.Job{Repository: "acme/app", Labels: []string{"linux"}}
	linux := []string{"linux", "x64"}
	for name, tc := range map[string]tc{
		"label matches":             {"acme", nil, linux, private, false, githubsim.JobAssigned},
		"letter case is ignored":    {"ACME", nil, linux, githubsim.Job{Repository: "Acme/App", Labels: []string{"LINUX", "X64"}}, false, githubsim.JobAssigned},
		"one label is missing":      {"acme", nil, linux, githubsim.Job{Repository: "acme/app", Labels: []string{"linux", "gpu"}}, false, githubsim.JobQueued},
		"the name is no label":      {"acme", nil, linux, githubsim.Job{Repository: "acme/app", Labels: []string{"Pool"}}, false, githubsim.JobQueued},
		"name beside a label":       {"acme", nil, linux, githubsim.Job{Repository: "acme/app", Labels: []string{"pool", "linux"}}, false, githubsim.JobQueued},
		"its own repository":        {"acme/app", nil, linux, private, false, githubsim.JobAssigned},
		"another repository":        {"acme/lib", nil, linux, private, false, githubsim.JobQueued},
		"another organization":      {"other", nil, linux, private, false, githubsim.JobQueued},
		"its enterprise":            {"enterprises/corp", nil, linux, private, false, githubsim.JobAssigned},
		"public in the default":     {"acme", nil, linux, private, true, githubsim.JobQueued},
		"public, scale set of its":  {"acme/app", nil, linux, private, true, githubsim.JobAssigned},
		"public in a group for it":  {"acme", &githubsim.Group{AllowsPublic: true}, linux, private, true, githubsim.JobAssigned},
		"public in a private group": {"acme", &githubsim.Group{Visibility: "private", AllowsPublic: true}, linux, private, true, githubsim.JobQueued},
		"selected by the group":     {"acme", &githubsim.Group{Visibility: "selected", Repositories: []string{"acme/APP"}}, linux, private, false, githubsim.JobAssigned},
		"not selected by the group": {"acme", &githubsim.Group{Visibility: "selected", Repositories: []string{"acme/lib"}}, linux, private, false, githubsim.JobQueued},
	} {
		t.Run(name, func(t *testing.T) {
			sim := start(t, githubsim.Options{Hold: time.Millisecond})
			sim.AddEnterprise("corp", "acme")
			sim.AddOrg("other")
			for _, repo := range []githubsim.Repository{{FullName: "acme/app", Public: tc.public}, {FullName: "acme/lib"}} {
				if err := sim.AddRepository(repo); err != nil {
					t.Fatal(err)
				}
			}
			groupID := 1
			if tc.group != nil {
				tc.group.Name = "team"
				groupID = sim.AddRunnerGroup(tc.scope, *tc.group)
			}
			client := newClient(t, sim, tc.scope)
			set := &scaleset.RunnerScaleSet{Name: "pool", RunnerGroupID: groupID}
			for _, l := range tc.labels {
				set.Labels = append(set.Labels, scaleset.Label{Name: l})
			}
			set, err := client.CreateRunnerScaleSet(testContext(t), set)
			if err != nil {
				t.Fatal(err)
			}
			addJob(t, sim, tc.job)
			if _, err := openSession(t, client, set.ID).GetMessage(testContext(t), 0, 10); err != nil {
				t.Fatal(err)
			}
			if got := sim.Jobs()[0].State; got != tc.want {
				t.Errorf("the job is %s, want %s", got, tc.want)
			}
		})
	}
}

func TestSingleLabelServersDropTheOthers(t *testing.T) {
	sim := start(t, githubsim.Options{SingleLabel: true})
	set, err := newClient(t, sim, "acme").CreateRunnerScaleSet(testContext(t), &scaleset.RunnerScaleSet{
		Name: "pool", RunnerGroupID: 1, Labels: []scaleset.Label{{Name: "a"}, {Name: "b"}},
	})
	if err != nil || len(set.Labels) != 1 {
		t.Errorf("got %+v, %v; want one label", set, err)
	}
}

func TestWaitingJobsOfADeletedScaleSetAreQueuedAgain(t *testing.T) {
	sim := start(t, githubsim.Options{})
	ctx := testContext(t)
	client := newClient(t, sim, "acme")
	set := newSet(t, client)
	addJob(t, sim, githubsim.Job{})
	poll(t, openSession(t, client, set.ID), 0, 1)
	if err := client.DeleteRunnerScaleSet(ctx, set.ID); err != nil {
		t.Fatal(err)
	}
	if got := sim.Jobs()[0]; got.State != githubsim.JobQueued || got.ScaleSetID != 0 {
		t.Errorf("after deletion: %+v", got)
	}
	next := newSet(t, client)
	poll(t, openSession(t, client, next.ID), 0, 1)
	if got := sim.Jobs()[0]; got.State != githubsim.JobAssigned || got.ScaleSetID != next.ID {
		t.Errorf("with a new scale set: %+v", got)
	}
}

func TestJobThatNobodyPicksUpIsAssignedThreeTimes(t *testing.T) {
	clock := newClock()
	sim := start(t, githubsim.Options{Clock: clock.now, PickupTimeout: time.Minute, SessionExpiry: time.Hour})
	client := newClient(t, sim, "acme")
	set := newSet(t, client)
	session := openSession(t, client, set.ID)
	addJob(t, sim, githubsim.Job{})
	after := 0
	for attempt := 1; attempt <= 3; attempt++ {
		message := poll(t, session, after, 1)
		after = message.MessageID
		if got := sim.Jobs()[0].Attempts; got != attempt {
			t.Errorf("attempt %d, want %d", got, attempt)
		}
		clock.advance(time.Duration(attempt) * time.Minute)
	}
	last := poll(t, session, after, 1)
	if len(last.JobCompletedMessages) != 1 || last.JobCompletedMessages[0].Result != "canceled" {
		t.Errorf("the last message: %+v", last)
	}
	if broken := sim.Invariants(); len(broken) != 1 {
		t.Errorf("broken: %v; want the lost job", broken)
	}
}
