// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"testing"
	"time"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/sim/githubsim"
)

// An App's assertion uses GitHub's clock, which the first answer shows, and its token is used until it expires by that
// clock.
func TestAnAppUsesGitHubsClock(t *testing.T) {
	_, private := appKeys()
	for _, ahead := range []time.Duration{0, time.Hour, -time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			w := newWorld(t, githubsim.Options{})
			ours := w.now.Add(-ahead)
			connections := github.NewConnections(func() time.Time { return ours })
			o := connections.Watch(github.Options{Now: func() time.Time { return ours }}, "ci/acme")
			creds := github.Credentials{ConfigURL: w.ConfigURL("acme"), App: &github.App{ID: "7", InstallationID: 70, PrivateKey: private}}
			if _, err := Verify(t.Context(), creds, o); (err != nil) != (ahead != 0) {
				t.Errorf("the first look: %v", err)
			}
			if _, err := Verify(t.Context(), creds, o); err != nil {
				t.Error(err)
			}
			before := w.called(githubsim.EndpointAccessToken)
			c, err := NewClient(creds, o)
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if _, err := c.Runner(t.Context(), 1); err != nil {
					t.Error(err)
				}
			}
			if n := w.called(githubsim.EndpointAccessToken) - before; n != 1 {
				t.Errorf("%d tokens for three calls", n)
			}
		})
	}
}
