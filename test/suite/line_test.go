// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/githubsim"
)

func metaItems(list client.ObjectList) (int, error) { return meta.LenList(list), nil }

func TestJobsAreDoneFromZeroToZero(t *testing.T) {
	ctx := t.Context()
	must(t, w.Connect(ctx, "line", "acme", "line-org"))
	controller(t)
	pool := newPool("line", "linux", "acme")
	must(t, w.Client.Create(ctx, pool))
	for range 20 {
		if _, err := w.GitHub.AddJob(githubsim.Job{Repository: "line-org/app", Labels: []string{"linux"}, Duration: 100 * time.Millisecond}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func(context.Context) error {
		if r := w.GitHub.Report(); r.Jobs[githubsim.JobCompleted] != 20 {
			return fmt.Errorf("jobs: %v", r.Jobs)
		}
		return nil
	})
	must(t, w.Client.Delete(ctx, pool))
	eventually(t, func(ctx context.Context) error { return left(ctx, "line") })
	if r := w.GitHub.Report(); len(r.Broken) > 0 || len(w.GitHub.Leftovers()) > 0 {
		t.Errorf("broken: %v, left: %v", r.Broken, w.GitHub.Leftovers())
	}
	_ = v1alpha1.RunnerIdle
}
