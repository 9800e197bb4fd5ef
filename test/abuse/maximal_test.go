// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package abuse

import (
	"testing"

	"github.com/corral-dev/corral/sim/maximal"
	"github.com/corral-dev/corral/sim/world"
)

// A tenant whose lists and texts all have their maximum size must not delay another tenant. This holds when a
// leader starts, while pools change, for webhook events, for polled sources and after a crash. The story has its
// own world, because it kills the controller. It fails if a job of the other tenant does not start. The bench
// scenario maximal-5000 measures how long jobs wait, because other tests run on the machine at the same time.
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
	if r.Changes == 0 || r.Taken == 0 || r.Taken < r.Sent/2 {
		t.Errorf("the tenant's pools changed %d times, %d of %d events were taken", r.Changes, r.Taken, r.Sent)
	}
	t.Logf("memory alone %+v, beside %+v; %d changes, %d of %d events", r.AloneMemory, r.BesideMemory, r.Changes, r.Taken, r.Sent)
}
