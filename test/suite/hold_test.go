// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"fmt"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// A pool on hold finishes its job, accepts no other jobs, and keeps its idle runners. The waiting job runs once
// the hold ends.
func TestAPoolOnHold(t *testing.T) {
	const namespace = "hold"
	w := newStory(t, namespace)
	must(t, w.Connect(t.Context(), namespace, "acme", "hold-org"))
	w.controller(t)
	p := newPool(namespace, "linux", "acme", func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Idle = new(int32(2)) })
	must(t, w.Client.Create(t.Context(), p))
	set := func(policy v1alpha1.StopPolicy) {
		text := fmt.Sprintf(`{"spec":{"stopPolicy":%q}}`, policy)
		must(t, w.Client.Patch(t.Context(), p, client.RawPatch("application/merge-patch+json", []byte(text))))
	}
	counts := func(capacity int, busy, idle int32) {
		t.Helper()
		eventually(t, func(ctx context.Context) error {
			if err := w.Client.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
				return err
			}
			sets := w.GitHub.Report().ScaleSets
			if r := p.Status.Runners; len(sets) != 1 || sets[0].Capacity != capacity || r.Busy != busy || r.Idle != idle {
				return fmt.Errorf("runners %+v, scale sets %+v; want capacity %d", r, sets, capacity)
			}
			return nil
		})
	}

	accepted := w.addJobs(t, "hold-org", "linux", 1, 10*time.Second)
	w.busyRunners(t, namespace, 1)
	set(v1alpha1.StopHold)
	counts(0, 1, 2)
	waiting := w.addJobs(t, "hold-org", "linux", 1, 50*time.Millisecond)
	w.allDone(t, accepted)
	counts(0, 0, 2)
	for _, job := range w.GitHub.Jobs() {
		if job.ID == waiting[0] && job.ScaleSetID != 0 {
			t.Errorf("a pool on hold was assigned job %+v", job)
		}
	}
	set(v1alpha1.StopNone)
	w.allDone(t, waiting)
	w.cleanUp(t, namespace)
}
