// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
)

// pacedGitHub refuses calls beyond a burst of 450 and 7.5 per second, as internal/github/rest does for github.com. A call
// takes 200 ms.
type pacedGitHub struct {
	*fakeGitHub
	mu     sync.Mutex
	points float64
	at     time.Time
	lists  int
}

func (g *pacedGitHub) spend(ctx context.Context) error {
	const rate, reserve = 7.5, 22.5
	g.mu.Lock()
	now := time.Now()
	g.points, g.at = min(450, g.points+rate*now.Sub(g.at).Seconds()), now
	short := 1 + reserve - g.points
	if short <= 0 {
		g.points--
	}
	g.mu.Unlock()
	if short > 0 {
		return github.NewError(github.KindRateLimited, "reading", 0, time.Duration(short/rate*float64(time.Second)), "used up", nil)
	}
	select {
	case <-time.After(200 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return github.NewError(github.KindUnavailable, "reading", 0, 0, "left", ctx.Err())
	}
}

func (g *pacedGitHub) Deliveries(ctx context.Context, hook int64, cursor string) ([]rest.Delivery, string, error) {
	if err := g.spend(ctx); err != nil {
		return nil, "", err
	}
	g.mu.Lock()
	g.lists++
	g.mu.Unlock()
	return g.fakeGitHub.Deliveries(ctx, hook, cursor)
}

func (g *pacedGitHub) Payload(ctx context.Context, hook, id int64) (string, []byte, error) {
	if err := g.spend(ctx); err != nil {
		return "", nil, err
	}
	return g.fakeGitHub.Payload(ctx, hook, id)
}

// leadWith runs a tracker as the leader, with another GitHub or API server than the place's own, until the test ends.
func (x *place) leadWith(t *testing.T, c Config) {
	x.tracker = NewJobTracker(c)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- x.tracker.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		<-done
	})
}

func TestLostDeliveriesBeyondTheBudgetAreReadWithinMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		for i := range int64(1000) {
			x.gh.event(job(i+1, "queued", "gpu"), 503)
		}
		gh := &pacedGitHub{fakeGitHub: x.gh, points: 450, at: time.Now()}
		x.leadWith(t, Config{Client: x.api, Now: time.Now, GitHub: func(types.NamespacedName) (GitHub, bool) { return gh, true }})
		wait(3 * time.Minute)
		x.want("gpu", 1000)
		if gh.lists > 100 {
			t.Errorf("the deliveries were listed %d times", gh.lists)
		}
	})
}

// failingCursor is an API server that for a while cannot read the cursor of deliveries.
type failingCursor struct {
	client.Client
	until time.Time
}

func (f failingCursor) Get(ctx context.Context, key client.ObjectKey, obj client.Object, options ...client.GetOption) error {
	if key.Name == "acme-deliveries" && time.Now().Before(f.until) {
		return errors.New("etcdserver: request timed out")
	}
	return f.Client.Get(ctx, key, obj, options...)
}

func TestAnErrorOfTheAPIServerPutsCatchingUpOffForSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		x.gh.event(job(1, "queued", "gpu"), 503)
		x.leadWith(t, Config{
			Client: failingCursor{x.api, time.Now().Add(time.Second)}, Now: time.Now,
			GitHub: func(types.NamespacedName) (GitHub, bool) { return x.gh, true },
		})
		wait(time.Minute)
		x.want("gpu", 1)
	})
}
