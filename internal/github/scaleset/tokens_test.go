// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/sim/githubsim"
)

// REST calls count towards the App's hourly limit; calls of the Actions service do not. Per hour, tokens with a life of
// an hour are created twice and tokens with a life of a quarter of an hour five times, for all pools together.
func TestRESTCallsOfAnHourDoNotDependOnTheNumberOfPools(t *testing.T) {
	most := map[githubsim.Endpoint]int{
		githubsim.EndpointAccessToken: 2, githubsim.EndpointRegistrationToken: 2, githubsim.EndpointRunnerRegistration: 5,
	}
	for _, pools := range []int{5, 50} {
		calls := restCallsOfAnHour(t, pools)
		for name, n := range most {
			if calls[name] > n {
				t.Errorf("%d pools: %d calls of %s; want at most %d", pools, calls[name], name, n)
			}
		}
	}
}

func restCallsOfAnHour(t *testing.T, pools int) (calls map[githubsim.Endpoint]int) {
	t.Helper()
	key, encoded := appKey()
	synctest.Test(t, func(t *testing.T) {
		sim := githubsim.New(githubsim.Options{})
		sim.AddOrg("acme")
		sim.AddApp(githubsim.App{
			ID: 7, InstallationID: 70, PublicKey: &key.PublicKey, Account: "acme",
			Permissions: map[string]string{"organization_self_hosted_runners": "write"},
		})
		c, err := NewClient(github.Credentials{
			ConfigURL: "http://github.test/acme", App: &github.App{ID: "7", InstallationID: 70, PrivateKey: encoded},
		}, github.Options{Transport: inMemory(sim)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		for i := range pools {
			set, err := c.Create(ctx, Set{Name: fmt.Sprintf("linux-%d", i), GroupID: 1})
			if err != nil {
				t.Fatal(err)
			}
			l := NewListener(Config{Client: c, SetID: set.ID, Owner: owner, Recorder: slowRecorder{}})
			l.Announce(10)
			running.Go(func() { l.Run(ctx) })
		}
		time.Sleep(time.Hour)
		report := sim.Report()
		if report.SessionsOpen != pools || report.Requests[githubsim.EndpointCreateSession] != pools {
			t.Errorf("%d sessions are open of %d; %d were opened", report.SessionsOpen, pools, report.Requests[githubsim.EndpointCreateSession])
		}
		if n := report.Requests[githubsim.EndpointRefreshSession]; n < 3*pools {
			t.Errorf("%d renewals of queue tokens: this hour proves nothing", n)
		}
		calls = report.Requests
		cancel()
		running.Wait()
		time.Sleep(2 * clientRest)
		sim.Close()
	})
	return calls
}
