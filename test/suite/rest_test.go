// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"testing"
	"time"

	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/world"
)

// Answers to registrations are lost, GitHub limits requests and fails, and the controller is killed. Each job
// still runs, and no registration is left.
func TestRESTRunnersWhileGitHubAndTheControllerFail(t *testing.T) {
	w := newStory(t, "restfaults")
	address, err := world.FreeAddress()
	must(t, err)
	d := w.newDemandWorld(t, "restfaults", address)
	first := w.start(t, "--webhook-addr="+address)
	d.example("webhooks", "max: 50", "max: 10")
	d.until("linux-web", ready)
	var remove []func()
	for _, f := range []githubsim.Fault{
		{Endpoint: githubsim.EndpointGenerateJITConfig, Probability: 0.15, DropAnswer: true, Status: 502},
		{Endpoint: githubsim.EndpointGenerateJITConfig, Probability: 0.15, Status: 500},
		{Endpoint: githubsim.EndpointDeleteRunner, Probability: 0.2, Status: 503},
		{Endpoint: githubsim.EndpointRunners, Probability: 0.2, DropAnswer: true},
		githubsim.SecondaryLimit(githubsim.EndpointGenerateJITConfig, 2*time.Second),
	} {
		if f.Probability == 0 {
			f.Skip, f.Times = 5, 1
		}
		remove = append(remove, w.GitHub.AddFault(f))
	}
	ids := d.jobs(20, "web-shop", "linux", "web")
	must(t, w.GitHub.WaitUntil(t.Context(), func() bool { return w.GitHub.Report().Jobs[githubsim.JobRunning] > 2 }))
	first.Kill()
	ids = append(ids, d.jobs(10, "web-shop", "linux", "web")...)
	w.start(t, "--webhook-addr="+address)
	w.allDone(t, ids)
	for _, r := range remove {
		r()
	}
	d.idle("linux-web", 0)
	d.end()
}
