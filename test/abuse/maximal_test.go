// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package abuse

import (
	"testing"

	"github.com/corral-dev/corral/sim/maximal"
	"github.com/corral-dev/corral/sim/world"
)

// A tenant that reaches every limit does not delay its neighbor: at the leader's start, while its commits are applied or
// its pools change, when its events arrive or its metrics are polled, or after a crash. The story has its own world
// because it kills the controller. The test only requires that each job of the neighbor starts. The bench scenario
// maximal-5000 measures how long jobs wait, because other tests share the machine with this one.
func TestATenantAtTheMaximumOfEveryBound(t *testing.T) {
	t.Parallel()
	own, err := world.Start(t.Context(), world.Options{})
	must(t, err)
	t.Cleanup(func() { must(t, own.Stop()) })
	story := &maximal.Story{World: own, Binary: w.Binary, Pools: 60, Wide: 2, Jobs: 3, Starts: 1, Say: t.Logf}
	r, err := story.Run(t.Context())
	must(t, err)
	if len(r.Refused) > 0 {
		t.Errorf("%d of the tenant's pools do nothing: %s", len(r.Refused), r.Refused[0])
	}
	if r.Commits == 0 || r.Changes == 0 || r.Taken == 0 || r.Taken < r.Sent/2 {
		t.Errorf("%d commits were applied, the tenant's pools changed %d times, %d of %d events were taken", r.Commits, r.Changes, r.Taken, r.Sent)
	}
	t.Logf("memory alone %+v, beside %+v; %d changes, %d of %d events", r.AloneMemory, r.BesideMemory, r.Changes, r.Taken, r.Sent)
}
