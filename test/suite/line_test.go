// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/sim/harness"
)

// addJobs adds jobs to an account and returns their IDs.
func (w *story) addJobs(t *testing.T, account, label string, n int, duration time.Duration) []string {
	t.Helper()
	return harness.AddJobs(t, w.GitHub, account, label, n, duration)
}

// allDone waits until all jobs have succeeded.
func (w *story) allDone(t *testing.T, ids []string) {
	t.Helper()
	harness.AllDone(t, w.GitHub, ids)
}

func TestJobsAreDoneFromZeroToZero(t *testing.T) {
	w := newStory(t, "line")
	must(t, w.Connect(t.Context(), "line", "acme", "line-org"))
	w.controller(t)
	must(t, w.Client.Create(t.Context(), newPool("line", "linux", "acme")))
	w.allDone(t, w.addJobs(t, "line-org", "linux", 25, 50*time.Millisecond))
	eventually(t, func(ctx context.Context) error {
		p := &v1alpha1.RunnerPool{}
		must(t, w.Client.Get(ctx, key("line", "linux"), p))
		if p.Status.Runners.Total != 0 || p.Status.GetJobs() != 0 || p.Status.Decision == nil || p.Status.Decision.Desired != 0 {
			return fmt.Errorf("the pool is %+v, decided %+v", p.Status.Runners, p.Status.Decision)
		}
		return nil
	})
	w.cleanUp(t, "line")
}
