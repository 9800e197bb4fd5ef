// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"testing"
	"time"

	official "github.com/actions/scaleset"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/sim/githubsim"
)

// An App's assertion uses GitHub's clock, and so does the expiry of its tokens. The first answer shows the difference.
func TestAnAppUsesGitHubsClock(t *testing.T) {
	key, encoded := appKey()
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			sim := startSim(t, githubsim.Options{Clock: func() time.Time { return time.Now().Add(ahead) }})
			sim.AddApp(githubsim.App{
				ID: 7, InstallationID: 70, PublicKey: &key.PublicKey, Account: "acme", Permissions: map[string]string{"organization_self_hosted_runners": "write"},
			})
			connections := github.NewConnections(time.Now)
			clients := NewClients(connections, github.Options{Now: time.Now})
			var reported time.Duration
			connections.Report = func(_ string, d time.Duration, _ bool) { reported = d }
			if err := connections.Set("ci/acme", github.Credentials{ConfigURL: sim.ConfigURL("acme"), App: &github.App{ID: "7", InstallationID: 70, PrivateKey: encoded}}); err != nil {
				t.Fatal(err)
			}
			c, _ := clients.Get("ci/acme")
			if _, err := c.Find(testContext(t), 1, "linux"); (err != nil) != (ahead != 0) {
				t.Errorf("the first call: %v", err)
			}
			for range 3 {
				if _, err := c.Find(testContext(t), 1, "linux"); err != nil {
					t.Error(err)
				}
			}
			if n := sim.Report().Requests[githubsim.EndpointRunnerRegistration]; n != 1 {
				t.Errorf("%d admin tokens for four calls", n)
			}
			for _, got := range []time.Duration{reported, connections.Ahead("ci/acme")} {
				if (got - ahead).Abs() > 2*time.Second {
					t.Errorf("GitHub's clock is %s ahead, known is %s", ahead, got)
				}
			}
		})
	}
}

// Times in events are converted to the local clock.
func TestTimesOfJobsAreOurs(t *testing.T) {
	now := time.Unix(100_000, 0)
	ours := func(theirs time.Time) time.Time {
		if theirs.IsZero() {
			return theirs
		}
		return theirs.Add(-time.Hour)
	}
	theirs := now.Add(time.Hour)
	base := official.JobMessageBase{JobID: "1", QueueTime: theirs, ScaleSetAssignTime: theirs, RunnerAssignTime: theirs, FinishTime: theirs}
	message := &official.RunnerScaleSetMessage{
		JobAssignedMessages: []*official.JobAssigned{{JobMessageBase: base}, {JobMessageBase: official.JobMessageBase{JobID: "2"}}},
		JobStartedMessages:  []*official.JobStarted{{JobMessageBase: base}}, JobCompletedMessages: []*official.JobCompleted{{JobMessageBase: base}},
	}
	events := eventsOf(message, now, ours)
	for _, e := range events {
		if !e.At.Equal(now) {
			t.Errorf("%s of job %s at %s, want %s", e.Type, e.JobID, e.At, now)
		}
		for _, at := range []time.Time{e.QueuedAt, e.AssignedAt, e.StartedAt} {
			if e.JobID == "1" && !at.Equal(now) || e.JobID == "2" && !at.IsZero() {
				t.Errorf("job %s: %+v", e.JobID, e)
			}
		}
	}
	if len(events) != 4 {
		t.Errorf("%d events", len(events))
	}
}
