// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/sim/githubsim"
)

// The client and the simulated GitHub support what a JobTracker requests: it reads lost deliveries, lists jobs, and looks
// up the visibility of groups.
func TestLostDeliveriesAreReadFromGitHub(t *testing.T) {
	sim, err := githubsim.Start(githubsim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	sim.AddToken("t")
	for _, name := range []string{"acme/web", "acme/api"} {
		if err := sim.AddRepository(githubsim.Repository{FullName: name}); err != nil {
			t.Fatal(err)
		}
	}
	hook, err := sim.AddHook(githubsim.Hook{Owner: "acme", URL: "http://127.0.0.1:1/", Secret: "s"}) // no server listens there
	if err != nil {
		t.Fatal(err)
	}
	for i := range 150 {
		if _, err := sim.AddJob(githubsim.Job{Repository: []string{"acme/web", "acme/api"}[i%2], Labels: []string{"self-hosted", "gpu"}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := sim.WaitDelivered(t.Context()); err != nil {
		t.Fatal(err)
	}

	c := connOf("acme", "acme")
	c.Spec.URL, c.Spec.Webhook.HookID = sim.ConfigURL("acme"), hook
	x := newPlace(t, c, poolOf("gpu"))
	gh, err := rest.NewClient(github.Credentials{ConfigURL: c.Spec.URL, Token: "t"}, github.Options{})
	if err != nil {
		t.Fatal(err)
	}
	x.tracker = NewJobTracker(Config{Client: x.api, Now: time.Now, GitHub: func(types.NamespacedName) (GitHub, bool) { return gh, true }})
	ctx, stop := context.WithCancel(t.Context())
	wakes := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	if err := x.tracker.Events.Start(ctx, wakes); err != nil {
		t.Fatal(err)
	}
	limit := time.AfterFunc(2*time.Minute, wakes.ShutDown)
	defer limit.Stop()
	done := make(chan error, 1)
	go func() { done <- x.tracker.Start(ctx) }()
	for over := false; !over && x.jobs("gpu") != 150; { // each event is another reason to check
		var pool reconcile.Request
		pool, over = wakes.Get()
		wakes.Done(pool)
	}
	x.want("gpu", 150)
	conn := x.connection()
	if left, err := x.tracker.compareAll(t.Context(), gh, conn, []string{"acme/web"}); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
	x.want("gpu", 150)
	if visible, err := gh.Visible(t.Context(), "default", "acme/web"); err != nil || !visible {
		t.Error(visible, err)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if conn.lookBack.passed[0].IsZero() {
		t.Error("no look at the deliveries has ended")
	}
}
