// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"testing"
	"time"

	"github.com/corral-dev/corral/sim/githubsim"
)

// GitHub answers late, twice, not at all and with errors, all at the same time.
func TestJobsAreDoneWhileGitHubMisbehaves(t *testing.T) {
	w := newStory(t, "faults")
	must(t, w.Connect(t.Context(), "faults", "acme", "faults-org"))
	w.controller(t)
	for _, f := range []githubsim.Fault{
		{Endpoint: githubsim.EndpointCreateScaleSet, Times: 1, DropAnswer: true, Status: 502},
		{Endpoint: githubsim.EndpointCreateSession, Times: 1, Status: 500},
		{Endpoint: githubsim.EndpointJITConfig, Times: 4, Status: 500},
		{Endpoint: githubsim.EndpointJITConfig, Skip: 2, Times: 2, DropAnswer: true, Status: 502},
		{Endpoint: githubsim.EndpointJITConfig, Skip: 2, Times: 1, Status: 429, RetryAfter: time.Second},
		{Endpoint: githubsim.EndpointGetMessage, Times: 2, Status: 503},
		{Endpoint: githubsim.EndpointGetMessage, Times: 3, Alter: githubsim.AlterDuplicate},
		{Endpoint: githubsim.EndpointGetMessage, Times: 2, Alter: githubsim.AlterReorder},
		{Endpoint: githubsim.EndpointDeleteMessage, Times: 2, Alter: githubsim.AlterDuplicate},
		{Endpoint: githubsim.EndpointDeleteAgent, Times: 3, Status: 500},
		{Endpoint: githubsim.EndpointDeleteAgent, Times: 2, Delay: 300 * time.Millisecond},
		{Endpoint: githubsim.EndpointDeleteScaleSet, Times: 1, DropAnswer: true, Status: 502},
	} {
		w.GitHub.AddFault(f)
	}
	t.Cleanup(w.GitHub.ClearFaults)
	must(t, w.Client.Create(t.Context(), newPool("faults", "linux", "acme")))
	w.allDone(t, w.addJobs(t, "faults-org", "linux", 25, 50*time.Millisecond))
	w.cleanUp(t, "faults")
}
