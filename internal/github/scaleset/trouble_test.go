// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/sim/githubsim"
)

// A connection is in trouble as long as its sessions are. The trouble ends when GitHub holds a poll again, before it
// answers the poll.
func TestTheTroubleOfSessionsIsTheConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := githubsim.New(githubsim.Options{})
		defer sim.Close()
		sim.AddOrg("acme")
		sim.AddToken("secret")
		known := github.NewConnections(time.Now)
		if err := known.Set("ci/acme", github.Credentials{ConfigURL: "http://github.test/acme", Token: "secret"}); err != nil {
			t.Fatal(err)
		}
		c, _ := NewClients(known, github.Options{Transport: inMemory(sim)}).Get("ci/acme")
		set := createSet(t, c)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			NewListener(Config{Client: c, SetID: set.ID, Owner: owner, Recorder: &memory{}}).Run(ctx)
		}()
		defer func() { cancel(); <-ended }()
		is := func(when string, code int) {
			t.Helper()
			synctest.Wait()
			if got, yes := known.Trouble("ci/acme"); yes != (code != 0) || got.Code != code {
				t.Errorf("%s: %t, %+v", when, yes, got)
			}
		}
		time.Sleep(time.Minute)
		is("at first", 0)
		sim.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointGetMessage, Status: 500})
		time.Sleep(2 * time.Minute) // a poll may be held
		is("with answers of 500", 500)
		sim.ClearFaults()
		time.Sleep(41 * time.Second) // 30 s to the next poll, 10 s until it counts as held
		is("when it is over", 0)
	})
}
