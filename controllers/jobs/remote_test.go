// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/reservation"
	"github.com/corral-dev/corral/internal/webhook"
)

func (x *place) cursor() cursor {
	x.t.Helper()
	var c cursor
	if err := json.Unmarshal(x.config("acme-deliveries").BinaryData[cursorKey], &c); err != nil {
		x.t.Fatal(err)
	}
	return c
}

func TestTheCursorFollowsWhatIsDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		x.lead()
		wait(2 * time.Minute)
		began := time.Now()
		for i := range int64(100) {
			x.accept(job(i, "queued", "gpu"))
			wait(200 * time.Millisecond)
		}
		if n := len(x.written("acme-deliveries")); n > 5 {
			t.Errorf("it is written %d times in 20 seconds", n)
		}
		wait(10 * time.Second)
		c := x.cursor()
		if c.Durable.Time.Before(began.Add(20 * time.Second)) {
			t.Errorf("it says %v, and all of %v is written down", c.Durable, began.Add(20*time.Second))
		}
		if looked := c.Looked.Time; looked.Before(began.Add(-2*time.Minute)) || looked.After(time.Now()) {
			t.Errorf("the last look began at %v", c.Looked)
		}
		x.edit(func() { x.broken = fmt.Errorf("etcd is full") })
		x.accept(job(1000, "queued", "gpu"))
		stuck := time.Now()
		wait(time.Minute)
		x.mu.Lock()
		x.broken = nil
		x.mu.Unlock()
		if at := x.tracker.durable(ns, time.Now()); at.After(stuck) {
			t.Errorf("all up to %v is said to be durable, and an event of %v is not", at, stuck)
		}
		wait(20 * time.Minute) // nothing happens
		if at := x.cursor().Durable; time.Since(at.Time) > 11*time.Minute {
			t.Errorf("it still says %v after %v", at, time.Since(at.Time))
		}
		x.end()
		if at := x.cursor().Durable; time.Since(at.Time) > time.Second {
			t.Errorf("it says %v at the end", at)
		}
	})
}

// A process that was killed while recovering deliveries has not moved the cursor past those that it did not read.
func TestAnUnfinishedLookMovesNoCursor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		x.lead()
		wait(time.Minute)
		x.accept(job(1, "queued", "gpu"))
		wait(time.Minute)
		x.end()
		before := x.cursor()
		for i := range int64(30) {
			x.gh.event(job(10+i, "queued", "gpu"), 503)
			wait(time.Minute)
		}
		x.gh.edit(func() { x.gh.payloads[1] = []byte("") }) // GitHub is asked to send it again, which fails too
		x.gh.edit(func() { x.gh.fails = github.NewError(github.KindUnavailable, "reading", 502, 0, "away", nil) })
		x.lead()
		x.accept(job(2, "queued", "gpu"))
		wait(10 * time.Minute)
		x.kill()
		if diff := cmp.Diff(before, x.cursor()); diff != "" {
			t.Errorf("the cursor moved (-before +after):\n%s", diff)
		}
		x.gh.edit(func() { x.gh.fails = nil })
		x.lead()
		defer x.end()
		wait(time.Minute)
		x.want("gpu", 31) // 1 and 2, and 29 of 30; the delivery that GitHub does not show was requested again
		if diff := cmp.Diff([]int64{1}, x.gh.again); diff != "" {
			t.Errorf("asked for again (-want +got):\n%s", diff)
		}
	})
}

func TestPausesAfterErrors(t *testing.T) {
	limited := github.NewError(github.KindRateLimited, "listing", 429, 3*time.Minute, "slow down", nil)
	for name, tc := range map[string]struct {
		err  error
		want time.Duration
	}{
		"not ready":      {errNotReady, noClient},
		"limited":        {fmt.Errorf("looking: %w", limited), 3 * time.Minute},
		"not allowed":    {github.NewError(github.KindForbidden, "listing", 403, 0, "no", nil), hopeless},
		"no such API":    {github.NewError(github.KindUnexpected, "listing", 0, 0, "enterprise", nil), hopeless},
		"GitHub is away": {github.NewError(github.KindUnavailable, "listing", 502, 0, "away", nil), 0},
	} {
		if got := pauseAfter(tc.err); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](minBackoff, maxBackoff)
	for i, want := range []time.Duration{2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 30 * time.Second, 30 * time.Second} {
		if got := limiter.When(reconcile.Request{NamespacedName: keyOf("acme")}); got != want {
			t.Errorf("after failure %d, the rate limiter waits %v, want %v", i+1, got, want)
		}
	}
}

// A repository that cannot be listed keeps its jobs, and does not prevent others from being compared.
func TestWhatCantBeListedStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		x.lead()
		defer x.end()
		x.accept(job(1, "queued", "gpu"))
		c := x.connection()
		x.gh.edit(func() {
			x.gh.fails = github.NewError(github.KindNotFound, "listing", 404, 0, "not there, or not for you", nil)
		})
		wait(5*time.Minute + time.Second)
		wait(5 * time.Minute)
		x.want("gpu", 1)
		if n := x.gh.count("jobs"); n != 1 {
			t.Errorf("it was tried %d times in five minutes", n)
		}
		x.gh.edit(func() { x.gh.fails = nil })
		d := job(2, "queued", "gpu")
		d.Repository.FullName = "acme/api"
		x.accept(d)
		wait(8 * time.Minute)
		x.want("gpu", 0) // GitHub lists neither
		c.mu.Lock()
		defer c.mu.Unlock()
		if len(c.backingOff) > 0 {
			t.Errorf("these aren't listed: %v", c.backingOff)
		}
	})
}

// A repository whose list takes too long does not prevent others from being compared.
func TestASlowRepositoryStarvesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		x.gh.edit(func() {
			x.gh.slow = map[string]error{"acme/a": github.NewError(github.KindUnavailable, "listing", 0, 0, "it took too long", nil)}
		})
		x.lead()
		defer x.end()
		for i := range int64(10) {
			d := job(i, "queued", "gpu")
			d.Repository.FullName = []string{"acme/a", "acme/z"}[i%2]
			x.accept(d)
		}
		wait(10 * time.Minute)
		x.want("gpu", 5) // the jobs of acme/a stay
		if n := x.gh.count("jobs"); n > 8 {
			t.Errorf("%d lists in ten minutes", n)
		}
		x.gh.edit(func() { x.gh.slow = nil })
		wait(15 * time.Minute)
		x.want("gpu", 0)
	})
}

// Pending comparisons are kept while GitHub does not answer.
func TestSuspectsWaitForGitHub(t *testing.T) {
	for name, err := range map[string]error{
		"limited":        github.NewError(github.KindRateLimited, "listing", 429, 5*time.Minute, "slow down", nil),
		"away":           github.NewError(github.KindUnavailable, "listing", 502, 0, "away", nil),
		"not to be seen": github.NewError(github.KindForbidden, "listing", 403, 0, "no", nil),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"), poolOf("big", func(p *v1alpha1.RunnerPool) { p.Spec.RunnerLabels = []string{"gpu", "big"} }))
				x.lead()
				defer x.end()
				x.accept(job(1, "queued", "gpu"))
				x.gh.mu.Lock()
				x.gh.slow = map[string]error{"acme/web": err}
				x.gh.jobs["acme/web"] = []rest.Job{{ID: 1, Status: "queued", Labels: []string{"gpu"}}}
				x.gh.mu.Unlock()
				x.tracker.removePool(keyOf("gpu"))
				wait(5 * time.Minute)
				x.gh.edit(func() { x.gh.slow = nil })
				wait(15 * time.Minute)
				x.want("big", 1)
			})
		})
	}
}

// The secret of a repository's or organization's webhook is accepted for events of that scope only.
func TestAWebhookIsBelievedAboutItsOwn(t *testing.T) {
	of := func(change func(*v1alpha1.GitHubConnection)) *v1alpha1.GitHubConnection {
		c := connOf("hook", "acme")
		change(c)
		return c
	}
	cases := map[string]struct {
		conn *v1alpha1.GitHubConnection
		repo string
		want int32
	}{
		"an App's":                        {of(func(*v1alpha1.GitHubConnection) {}), "acme/web", 1},
		"an organization's, with a token": {of(func(c *v1alpha1.GitHubConnection) { c.Spec.URL, c.Name = "https://github.com/other", "token" }), "acme/web", 0},
		"an organization's, of it":        {of(func(c *v1alpha1.GitHubConnection) { c.Spec.Webhook.HookID = 5 }), "acme/web", 1},
		"another organization's":          {of(func(c *v1alpha1.GitHubConnection) { c.Spec.URL, c.Spec.Webhook.HookID = "https://github.com/other", 5 }), "acme/web", 0},
		"a repository's, of it": {of(func(c *v1alpha1.GitHubConnection) {
			c.Spec.URL, c.Spec.Webhook.HookID = "https://github.com/acme/web", 5
		}), "acme/web", 1},
		"a repository's, of another": {of(func(c *v1alpha1.GitHubConnection) {
			c.Spec.URL, c.Spec.Webhook.HookID = "https://github.com/acme/web", 5
		}), "acme/api", 0},
		"an App's, of an installation's": {of(func(c *v1alpha1.GitHubConnection) { c.Spec.URL = "https://github.com/other" }), "acme/web", 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				trigger := v1alpha1.Boost{Name: "push", Event: "push"}
				x := newPlace(t, connOf("acme", "acme"), tc.conn, poolOf("gpu", func(p *v1alpha1.RunnerPool) { p.Spec.Demand.Boosts = []v1alpha1.Boost{trigger} }), runnerOf("gpu-1", "gpu"))
				if tc.conn.Name != "token" {
					x.gh.edit(func() { x.gh.installation = 70 })
				}
				x.lead()
				defer x.end()
				d, done := job(1, "queued", "gpu"), job(2, "completed", "gpu", "gpu-1")
				push := webhook.Delivery{GUID: "p", Event: "push", Branch: "main", At: time.Now()}
				for _, e := range []*webhook.Delivery{&d, &done, &push} {
					e.Connection, e.Repository.FullName = keyOf(tc.conn.Name), tc.repo
					x.accept(*e)
				}
				wait(time.Second)
				x.want("gpu", tc.want)
				if idle := *x.tracker.Reading(keyOf("gpu")).Signals[1].Idle; idle != tc.want {
					t.Errorf("%d idle runners, want %d", idle, tc.want)
				}
				if len(x.recorded) != int(tc.want) {
					t.Errorf("recorded: %+v", x.recorded)
				}
			})
		})
	}
}

// A runner is identified by its registration, not by a name that anyone may use.
func TestARunnerIsKnownByItsRegistration(t *testing.T) {
	for name, tc := range map[string]struct {
		id, known int64
		repo      string
		want      int32
	}{
		"its own":                         {7, 7, "acme/web", 1},
		"not known yet":                   {7, 0, "acme/web", 1},
		"another":                         {8, 7, "acme/web", 0},
		"none":                            {0, 7, "acme/web", 0},
		"of a repository that isn't ours": {7, 7, "other/web", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := runnerOf("gpu-1", "gpu")
				r.Status.RunnerID = tc.known
				x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"), r)
				x.lead()
				defer x.end()
				d := job(1, "in_progress", "gpu", "gpu-1")
				d.Job.RunnerID, d.Repository.FullName = tc.id, tc.repo
				x.accept(d)
				wait(time.Second)
				x.want("gpu", tc.want)
				if len(x.recorded) != int(tc.want) {
					t.Errorf("recorded: %+v", x.recorded)
				}
			})
		})
	}
}

// An App's list contains the deliveries of all its installations. Deliveries for other namespaces are not read, and those
// received for another connection of this namespace are known.
func TestAnAppsDeliveriesAreReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), connOf("other", "other"), poolOf("gpu"))
		x.gh.edit(func() { x.gh.installation = 70 })
		x.lead()
		defer x.end()
		wait(5 * time.Minute)
		for i := range int64(20) {
			d := job(i, "queued", "gpu")
			x.gh.event(d, []int{202, 503}[i%2])
			x.gh.edit(func() { x.gh.deliveries[i].InstallationID = []int64{70, 71}[i/10] })
			if i%2 == 0 {
				x.accept(d)
			}
		}
		wait(5 * time.Minute)
		x.want("gpu", 15) // ten received deliveries, and five of this installation that were lost
		if n := x.gh.count("payload"); n != 5 {
			t.Errorf("%d deliveries were read, want 5", n)
		}
	})
}

func TestWhatCantBeReadIsTriedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		x.gh.unreadable = map[int64]error{
			1: github.NewError(github.KindUnexpected, "reading", 0, 0, "it is too large", nil),
			2: github.NewError(github.KindNotFound, "reading", 404, 0, "gone", nil),
		}
		x.lead()
		defer x.end()
		wait(5 * time.Minute)
		for i := range int64(3) {
			x.gh.event(job(i, "queued", "gpu"), 503)
		}
		wait(5 * time.Minute)
		x.want("gpu", 1)
		if n := x.gh.count("payload"); n != 3 {
			t.Errorf("%d were read, want each once", n)
		}
	})
}

// Jobs dropped since the last write stay dropped, also if the next write fails.
func TestAFailedWriteBringsNothingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		x.lead()
		defer x.end()
		for i := range int64(50) {
			x.accept(job(i, "queued", "gpu"))
		}
		wait(time.Minute)
		x.mu.Lock()
		x.broken = fmt.Errorf("etcd is full")
		x.mu.Unlock()
		x.tracker.reconcile(t.Context(), x.connection(), "acme/web", rest.JobList{Complete: true, At: time.Now()})
		x.want("gpu", 0)
		wait(time.Minute)
		x.want("gpu", 0)
		x.edit(func() { x.broken = nil })
		wait(time.Minute)
		x.want("gpu", 0)
		x.end()
		x.lead()
		x.want("gpu", 0)
	})
}

// After a restart, a job in two ledgers belongs to the pool with the later state.
func TestAJobOfTwoAccountsIsOnePools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		big := poolOf("big", func(p *v1alpha1.RunnerPool) { p.Spec.RunnerLabels = []string{"gpu", "big"} })
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"), big, runnerOf("big-1", "big"))
		x.lead()
		x.accept(job(1, "queued", "gpu"), job(2, "queued", "gpu"))
		wait(2 * time.Second)
		p := x.tracker.lock(keyOf("big")) // as if another process had written both
		for id, s := range map[int64]reservation.State{1: reservation.Running, 2: reservation.Waiting} {
			p.ledger.Record(reservation.Event{ID: id, State: s, Repository: "acme/web", Runner: "big-1"}, time.Now())
			p.space.noteChanged(p, time.Now())
		}
		p.space.mu.Unlock()
		wait(2 * time.Second)
		x.end()
		x.lead()
		defer x.end()
		x.want("gpu", 1)
		x.want("big", 1)
	})
}

// A repository that GitHub refuses to list is tried three times, and takes no other repository's turn.
func TestRefusedSuspectsAreGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		x.lead()
		defer x.end()
		x.gh.mu.Lock()
		x.gh.slow = map[string]error{}
		s := x.space()
		s.mu.Lock()
		for i := range 100 {
			name := fmt.Sprint("acme/gone-", i)
			x.gh.slow[name] = github.NewError(github.KindNotFound, "listing", 404, 0, "gone", nil)
			s.suspect(suspect{keyOf("acme"), name}, time.Now())
		}
		s.mu.Unlock()
		x.gh.mu.Unlock()
		x.accept(job(1, "queued", "gpu"))
		wait(7 * time.Minute)
		x.want("gpu", 0)
		wait(3 * time.Hour)
		if n := x.gh.count("jobs"); n > 301 {
			t.Errorf("%d lists were asked for, want three of each", n)
		}
	})
}

// A pool that is created or fixed after its jobs were queued gets them.
func TestAPoolGetsJobsThatWaitedForIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("cpu"))
		x.lead()
		defer x.end()
		x.accept(job(1, "queued", "gpu"))
		wait(30 * time.Minute)
		x.accept(job(2, "queued", "gpu"), job(3, "queued", "gpu"), job(3, "in_progress", "gpu", "vm-1"), job(4, "queued", "gpu"), job(4, "completed", "gpu"),
			job(5, "waiting", "gpu"), job(6, "queued", "ubuntu-latest"), job(2, "queued", "gpu"), job(5, "queued", "gpu"))
		wait(31 * time.Minute)
		x.setPool(poolOf("gpu"))
		wait(time.Second)
		x.want("gpu", 2) // 2 and 5; 1 is too old
		x.setPool(poolOf("gpu"))
		x.want("gpu", 2)
		for i := range int64(3 * maxUnmatched) {
			x.accept(job(100+i, "queued", "nobodys"))
		}
		if n := len(x.space().unmatched); n != maxUnmatched {
			t.Errorf("%d jobs are remembered that no pool is for", n)
		}
	})
}

func TestObserversAreComparedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watching := poolOf("watching", func(p *v1alpha1.RunnerPool) { p.Spec.Mode, p.Spec.RunnerLabels = v1alpha1.Observe, []string{"gpu"} })
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"), watching, runnerOf("gpu-1", "gpu"))
		x.lead()
		defer x.end()
		list := rest.JobList{Complete: true, At: time.Now(), Jobs: []rest.Job{
			{ID: 1, Status: "queued", Labels: []string{"gpu"}}, {ID: 2, Status: "in_progress", Labels: []string{"gpu"}, RunnerName: "arc-1", RunnerID: 8},
			{ID: 3, Status: "in_progress", Labels: []string{"gpu"}, RunnerName: "gpu-1", RunnerID: 7}, {ID: 4, Status: "pending", Labels: []string{"gpu"}},
			{ID: 5, Status: "completed", Labels: []string{"gpu"}}, {ID: 6, Status: "queued", Labels: []string{"cpu"}},
		}}
		x.tracker.reconcile(t.Context(), x.connection(), "acme/web", list)
		x.want("gpu", 2)
		x.want("watching", 3)
	})
}

// A list that is older than an event does not take the job from the pool whose runner has it.
func TestAListThatLagsBehindChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		big := poolOf("big", func(p *v1alpha1.RunnerPool) { p.Spec.RunnerLabels = []string{"gpu", "big"} })
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"), big, runnerOf("big-1", "big"))
		x.lead()
		defer x.end()
		x.accept(job(1, "queued", "gpu"), job(1, "in_progress", "gpu", "big-1"), job(2, "queued", "gpu"))
		list := rest.JobList{Complete: true, At: time.Now(), Jobs: []rest.Job{{ID: 1, Status: "queued", Labels: []string{"gpu"}}}}
		x.tracker.reconcile(t.Context(), x.connection(), "acme/web", list)
		x.want("big", 1)
		x.want("gpu", 1)
	})
}

// A job that expired and is reported again goes to the pool that matches it then.
func TestAJobThatWasGivenUpComesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		x.gh.edit(func() { x.gh.fails = github.NewError(github.KindForbidden, "listing", 403, 0, "no", nil) })
		x.lead()
		defer x.end()
		x.tracker.AtMax(keyOf("gpu"), false)
		x.accept(job(1, "queued", "gpu"))
		wait(61 * time.Minute)
		x.want("gpu", 0)
		x.accept(job(1, "queued", "gpu"))
		x.want("gpu", 1)
	})
}

func TestAPoolThatBeginsToObserveLetsGoOfItsJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"), poolOf("spare", func(p *v1alpha1.RunnerPool) { p.Spec.RunnerLabels = []string{"gpu", "spare"} }))
		x.lead()
		defer x.end()
		x.accept(job(1, "queued", "gpu"))
		x.setPool(poolOf("gpu", func(p *v1alpha1.RunnerPool) { p.Spec.Mode = v1alpha1.Observe }))
		x.accept(job(1, "queued", "gpu")) // a pool that acts may have it now
		x.want("gpu", 1)
		x.want("spare", 1)
		x.accept(job(1, "completed", "gpu"))
		x.want("gpu", 0)
		x.want("spare", 0)
	})
}

func TestPoolsWithoutWebhooksHaveNothingToSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu", func(p *v1alpha1.RunnerPool) { p.Spec.Demand = v1alpha1.DemandSpec{} }))
		x.lead()
		defer x.end()
		x.accept(job(1, "queued", "gpu"))
		if r := x.tracker.Reading(keyOf("gpu")); !r.Known || len(r.Signals) != 0 {
			t.Errorf("%+v", r)
		}
		wait(time.Minute)
		if len(x.writes) != 0 {
			t.Errorf("%d writes", len(x.writes))
		}
	})
}

func TestThereIsABoundOfJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		x.gh.edit(func() { x.gh.fails = github.NewError(github.KindForbidden, "listing", 403, 0, "no", nil) })
		x.lead()
		defer x.end()
		for i := range int64(reservation.MaxJobs + 5) {
			x.accept(job(i, "queued", "gpu"))
		}
		x.want("gpu", reservation.MaxJobs)
		want := "20000 waiting, 0 running, and no room for 5 more"
		if got := x.tracker.Reading(keyOf("gpu")).Signals[0].Reason; got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
		x.gh.mu.Lock()
		x.gh.fails = nil
		x.gh.jobs["acme/web"] = []rest.Job{{ID: reservation.MaxJobs + 3, Status: "queued", Labels: []string{"gpu"}}}
		x.gh.mu.Unlock()
		x.accept(job(1, "completed", "gpu"))
		wait(20 * time.Minute)
		x.want("gpu", 1)
	})
}

func TestConclusionsInTheWordsOfScaleSets(t *testing.T) {
	for conclusion, want := range map[string]string{"success": "succeeded", "failure": "failed", "cancelled": "canceled", "timed_out": "timed_out"} {
		d := job(5, "completed", "gpu", "gpu-1")
		d.Job.Conclusion, d.Job.CompletedAt = conclusion, time.Unix(5, 0)
		e, ok := jobEvent(d)
		if !ok || e.Result != want || !e.At.Equal(time.Unix(5, 0)) {
			t.Errorf("%s: %+v", conclusion, e)
		}
	}
	if _, ok := jobEvent(job(5, "queued", "gpu")); ok {
		t.Error("a job that waits is recorded")
	}
}

func TestBoostsAreForCoveredRepositoriesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trigger := v1alpha1.Boost{Name: "push", Event: "push"}
		boosts := func(p *v1alpha1.RunnerPool) {
			p.Spec.Demand = v1alpha1.DemandSpec{Boosts: []v1alpha1.Boost{trigger}, Webhook: &v1alpha1.WebhookDemand{Repositories: []string{"acme/api"}}}
		}
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu", boosts))
		x.lead()
		defer x.end()
		for i, repository := range []string{"other/web", "acme/web"} { // the webhook's repositories are for jobs
			x.accept(webhook.Delivery{GUID: fmt.Sprint(i), Connection: keyOf("acme"), Event: "push", Branch: "main", At: time.Now(), Repository: webhook.Repository{FullName: repository}})
		}
		if got := *x.tracker.Reading(keyOf("gpu")).Signals[1].Idle; got != 1 {
			t.Errorf("%d idle runners, want 1", got)
		}
		wait(time.Second)
		owners := []metav1.OwnerReference{*metav1.NewControllerRef(poolOf("gpu"), v1alpha1.GroupVersion.WithKind("RunnerPool"))}
		if diff := cmp.Diff(owners, x.config("gpu-jobs").OwnerReferences); diff != "" {
			t.Errorf("owners (-want +got):\n%s", diff)
		}
	})
}
