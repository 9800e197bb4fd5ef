// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package githubsim_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/actions/scaleset"

	"github.com/corral-dev/corral/sim/githubsim"
)

const patience = 2 * time.Minute

// clock is a clock that the test sets.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Now()} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// start returns a server with the organization "acme" and a token "secret".
func start(t *testing.T, opts githubsim.Options) *githubsim.Running {
	t.Helper()
	sim, err := githubsim.Start(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	sim.AddOrg("acme")
	sim.AddToken("secret")
	return sim
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// newClient returns the official client without its own retries.
func newClient(t *testing.T, sim *githubsim.Running, path string) *scaleset.Client {
	t.Helper()
	client, err := scaleset.NewClientWithPersonalAccessToken(scaleset.NewClientWithPersonalAccessTokenConfig{
		GitHubConfigURL: sim.ConfigURL(path), PersonalAccessToken: "secret",
		SystemInfo: scaleset.SystemInfo{System: "corral", Subsystem: "test"},
	}, scaleset.WithRetryMax(0))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// newSet creates the scale set "pool" with the label "linux".
func newSet(t *testing.T, client *scaleset.Client) *scaleset.RunnerScaleSet {
	t.Helper()
	set, err := client.CreateRunnerScaleSet(testContext(t), &scaleset.RunnerScaleSet{
		Name: "pool", RunnerGroupID: 1, Labels: []scaleset.Label{{Name: "linux"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func openSession(t *testing.T, client *scaleset.Client, setID int) *scaleset.MessageSessionClient {
	t.Helper()
	session, err := client.MessageSessionClient(testContext(t), setID, "cluster/pool")
	if err != nil {
		t.Fatal(err)
	}
	return session
}

func addJob(t *testing.T, sim *githubsim.Running, job githubsim.Job) string {
	t.Helper()
	if job.Repository == "" {
		job.Repository = "acme/app"
	}
	if job.Labels == nil {
		job.Labels = []string{"linux"}
	}
	id, err := sim.AddJob(job)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func waitUntil(t *testing.T, sim *githubsim.Running, cond func() bool) {
	t.Helper()
	if err := sim.WaitUntil(testContext(t), cond); err != nil {
		t.Fatalf("what the test waits for did not happen: %v; %+v", err, sim.Report())
	}
}
