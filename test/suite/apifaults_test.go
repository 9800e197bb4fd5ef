// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"fmt"
	"testing"

	"github.com/corral-dev/corral/sim/apiproxy"
	"github.com/corral-dev/corral/sim/harness"
)

// throughProxy runs the controller with a proxy between it and the API server.
func (w *story) throughProxy(t *testing.T) *apiproxy.Proxy {
	t.Helper()
	proxy, err := apiproxy.Start(w.Cluster.Config)
	must(t, err)
	t.Cleanup(proxy.Close)
	c, err := w.RunControllerThrough(t.Context(), proxy, w.Binary, w.flags...)
	must(t, err)
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
		harness.ShowLog(t, c)
	})
	return proxy
}

// The watch of Runners stays open and silent while jobs come, as behind a proxy that lost the stream.
func TestASilentWatchOfRunners(t *testing.T) {
	w := newStory(t, "silent")
	must(t, w.Connect(t.Context(), "silent", "acme", "silent-org"))
	proxy := w.throughProxy(t)
	must(t, w.Client.Create(t.Context(), newPool("silent", "linux", "acme", atMost(4))))
	w.listens(t, "silent", 1)
	opened := proxy.Count(apiproxy.Watch, "runners")
	proxy.Inject(apiproxy.Fault{Kind: apiproxy.FreezeWatch, Resource: "runners", Times: 1}) // the watch that is open
	ids := w.addJobs(t, "silent-org", "linux", 4, harness.LongJob)
	eventually(t, func(context.Context) error {
		if n := proxy.Count(apiproxy.Watch, "runners"); n == opened {
			return fmt.Errorf("the watch is not restarted")
		}
		return nil
	})
	harness.CutShort(t, w.GitHub, ids...)
	if n := w.GitHub.Report().RunnersMade; n > 4 {
		t.Errorf("%d runners were registered for 4 jobs", n)
	}
	t.Logf("watches of runners: %d, of pods: %d", proxy.Count(apiproxy.Watch, "runners"), proxy.Count(apiproxy.Watch, "pods"))
	w.cleanUp(t, "silent")
}
