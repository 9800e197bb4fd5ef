// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/webhook"
)

func TestTheFirstEventActsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		x.lead()
		defer x.end()
		wait(10 * time.Second)
		for x.queue.Len() > 0 {
			r, _ := x.queue.Get()
			x.queue.Done(r)
		}
		began := time.Now()
		x.accept(job(1, "queued", "GPU"))
		x.want("gpu", 1)
		if x.queue.Len() != 1 {
			t.Error("the pool isn't woken at once")
		}
		synctest.Wait()
		if at := x.written("gpu-jobs"); len(at) != 1 || !at[0].Equal(began) {
			t.Errorf("it is written down at %v, want at once (%v)", at, began)
		}
	})
}

func TestAStormCostsOneWriteASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"), poolOf("cpu"))
		x.lead()
		for i := range int64(5000) {
			x.accept(job(i, "queued", []string{"gpu", "cpu"}[i%2]))
			if i%5 == 0 {
				wait(5 * time.Millisecond)
			}
		}
		wait(2 * time.Second)
		x.want("gpu", 2500)
		for _, name := range []string{"gpu-jobs", "cpu-jobs"} {
			at := x.written(name)
			if len(at) > 8 {
				t.Errorf("%d writes of %s in seven seconds", len(at), name)
			}
			for i := 1; i < len(at); i++ {
				if at[i].Sub(at[i-1]) < writeInterval {
					t.Errorf("%s was written after %v", name, at[i].Sub(at[i-1]))
				}
			}
		}
		x.end()
	})
}

func TestAJobGoesWhereItsRunnerIs(t *testing.T) {
	cases := map[string]struct {
		events   func() []webhook.Delivery
		gpu, big int32
	}{
		"it waits":              {func() []webhook.Delivery { return []webhook.Delivery{job(1, "queued", "gpu")} }, 1, 0},
		"it waits for a person": {func() []webhook.Delivery { return []webhook.Delivery{job(1, "waiting", "gpu")} }, 0, 0},
		"it waits for a person, and GitHub says queued": {func() []webhook.Delivery {
			d := job(1, "queued", "gpu")
			d.Job.Status = "waiting"
			return []webhook.Delivery{d}
		}, 0, 0},
		"on its pool's runner": {func() []webhook.Delivery {
			return []webhook.Delivery{job(1, "queued", "gpu"), job(1, "in_progress", "gpu", "gpu-1")}
		}, 1, 0},
		"on another pool's runner": {func() []webhook.Delivery {
			return []webhook.Delivery{job(1, "queued", "gpu"), job(1, "in_progress", "gpu", "big-1")}
		}, 0, 1},
		"on another pool's runner, told in the other order": {func() []webhook.Delivery {
			return []webhook.Delivery{job(1, "in_progress", "gpu", "big-1"), job(1, "queued", "gpu")}
		}, 0, 1},
		"on a runner that is nobody's": {func() []webhook.Delivery {
			return []webhook.Delivery{job(1, "queued", "gpu"), job(1, "in_progress", "gpu", "vm-1")}
		}, 0, 0},
		"on a runner that is nobody's, told in the other order": {func() []webhook.Delivery {
			return []webhook.Delivery{job(1, "in_progress", "gpu", "vm-1"), job(1, "queued", "gpu")}
		}, 0, 0},
		"completed": {func() []webhook.Delivery {
			return []webhook.Delivery{job(1, "queued", "gpu"), job(1, "in_progress", "gpu", "gpu-1"), job(1, "completed", "gpu", "gpu-1")}
		}, 0, 0},
		"completed elsewhere than expected": {func() []webhook.Delivery {
			return []webhook.Delivery{job(1, "queued", "gpu"), job(1, "completed", "gpu", "big-1"), job(1, "in_progress", "gpu", "big-1")}
		}, 0, 0},
		"completed without a runner": {func() []webhook.Delivery {
			return []webhook.Delivery{job(1, "completed", "gpu"), job(1, "queued", "gpu")}
		}, 0, 0},
		"twice each": {func() []webhook.Delivery {
			return []webhook.Delivery{job(1, "queued", "gpu"), job(1, "queued", "gpu"), job(1, "in_progress", "gpu", "gpu-1"), job(1, "in_progress", "gpu", "gpu-1")}
		}, 1, 0},
		"of no pool's labels":      {func() []webhook.Delivery { return []webhook.Delivery{job(1, "queued", "ubuntu-latest")} }, 0, 0},
		"a word that nobody knows": {func() []webhook.Delivery { return []webhook.Delivery{job(1, "postponed", "gpu")} }, 0, 0},
		"of the year before": {func() []webhook.Delivery {
			d := job(1, "queued", "gpu")
			d.Job.CreatedAt = time.Now().AddDate(-1, 0, 0)
			return []webhook.Delivery{d}
		}, 0, 0},
		"of another organization": {func() []webhook.Delivery {
			d := job(1, "queued", "gpu")
			d.Repository.FullName = "other/web"
			return []webhook.Delivery{d}
		}, 0, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				big := poolOf("big", func(p *v1alpha1.RunnerPool) { p.Spec.RunnerLabels = []string{"gpu", "big"} })
				x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"), big, runnerOf("gpu-1", "gpu"), runnerOf("big-1", "big"))
				x.lead()
				defer x.end()
				x.accept(tc.events()...)
				x.want("gpu", tc.gpu)
				x.want("big", tc.big)
			})
		})
	}
}

func TestNothingIsTakenBeforeItIsKnownWhoseItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		idle := NewJobTracker(Config{Client: x.api, Now: time.Now})
		if err := idle.Accept(t.Context(), job(1, "queued", "gpu")); !errors.Is(err, webhook.ErrNotReady) {
			t.Errorf("who doesn't lead says %v", err)
		}
		if idle.Reading(keyOf("gpu")).Known {
			t.Error("it claims to know a pool")
		}
		x.lead()
		d := job(1, "queued", "gpu")
		d.Connection.Name = "unknown"
		if err := x.tracker.Accept(t.Context(), d); !errors.Is(err, webhook.ErrNotReady) {
			t.Errorf("an unknown connection's event: %v", err)
		}
		x.accept(job(1, "queued", "gpu"))
		x.end()
		if err := x.tracker.Accept(t.Context(), job(1, "queued", "gpu")); !errors.Is(err, webhook.ErrNotReady) {
			t.Errorf("who has ended says %v", err)
		}
	})
}

func TestAtMaxNothingExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		x.gh.edit(func() { x.gh.fails = github.NewError(github.KindForbidden, "listing", 403, 0, "no", nil) })
		x.lead()
		defer x.end()
		x.accept(job(1, "queued", "gpu"))
		x.tracker.AtMax(keyOf("gpu"), true)
		wait(5 * time.Hour)
		x.want("gpu", 1)
		x.tracker.AtMax(keyOf("gpu"), false)
		wait(59 * time.Minute)
		x.want("gpu", 1)
		wait(2 * time.Minute)
		x.want("gpu", 0)
	})
}

// That a repository cannot use a group is discovered after the first job, which then goes to the right pool.
func TestAHiddenGroupGetsNoJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secret := poolOf("secret", func(p *v1alpha1.RunnerPool) { p.Spec.RunnerLabels, p.Spec.RunnerGroup = []string{"gpu"}, "secret" })
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"), secret)
		x.gh.edit(func() { x.gh.hidden["secret"] = true })
		x.gh.edit(func() {
			x.gh.jobs["acme/web"] = []rest.Job{{ID: 1, Status: "queued", Labels: []string{"gpu"}}, {ID: 2, Status: "queued", Labels: []string{"gpu"}}}
		})
		x.lead()
		defer x.end()
		x.accept(job(1, "queued", "gpu"))
		x.want("secret", 1)
		wait(time.Second)
		x.accept(job(2, "queued", "gpu"))
		x.want("gpu", 1)
		wait(2 * time.Minute)
		x.want("secret", 0)
		x.want("gpu", 2)
	})
}

func TestThePoolsOfAConnectionThatIsGoneGetNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), connOf("other", "acme"), poolOf("gpu"), poolOf("web", func(p *v1alpha1.RunnerPool) {
			p.Spec.ConnectionRef.Name, p.Spec.RunnerLabels = "other", []string{"gpu", "web"}
		}))
		x.lead()
		defer x.end()
		if err := x.api.Delete(t.Context(), connOf("other", "")); err != nil {
			t.Fatal(err)
		}
		if _, err := x.tracker.reconcileConnection(t.Context(), reconcile.Request{NamespacedName: keyOf("other")}); err != nil {
			t.Fatal(err)
		}
		x.accept(job(1, "queued", "web"))
		x.want("web", 0)
	})
}

// When a pool is deleted, its jobs go to the next matching pool as soon as GitHub's list contains them.
func TestTheJobsOfADeletedPoolAreForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"), poolOf("big", func(p *v1alpha1.RunnerPool) { p.Spec.RunnerLabels = []string{"gpu", "big"} }))
		x.gh.edit(func() { x.gh.jobs["acme/web"] = []rest.Job{{ID: 1, Status: "queued", Labels: []string{"gpu"}}} })
		x.lead()
		defer x.end()
		x.accept(job(1, "queued", "gpu"))
		x.want("gpu", 1)
		if err := x.api.Delete(t.Context(), poolOf("gpu")); err != nil {
			t.Fatal(err)
		}
		if _, err := x.tracker.reconcilePool(t.Context(), reconcile.Request{NamespacedName: keyOf("gpu")}); err != nil {
			t.Fatal(err)
		}
		x.want("gpu", -1)
		wait(90 * time.Second)
		x.want("big", 1)
	})
}

func TestObserversCountWhatOthersRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watching := poolOf("watching", func(p *v1alpha1.RunnerPool) { p.Spec.Mode, p.Spec.RunnerLabels = v1alpha1.Observe, []string{"gpu"} })
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"), watching)
		x.lead()
		defer x.end()
		x.accept(job(1, "queued", "gpu"))
		x.want("gpu", 1)
		x.want("watching", 1)
		x.accept(job(1, "in_progress", "gpu", "arc-1"))
		x.want("gpu", 0)
		x.want("watching", 1)
		x.tracker.Retain(keyOf("watching"), func(string) bool { return false })
		x.want("watching", 1)
		x.accept(job(1, "completed", "gpu", "arc-1"))
		x.want("watching", 0)
	})
}

func TestWhoHasAJobIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inSet := poolOf("inset", func(p *v1alpha1.RunnerPool) { p.Spec.Registration = "" })
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"), inSet, runnerOf("gpu-1", "gpu"), runnerOf("inset-1", "inset"))
		x.edit(func() { x.failing = 2 })
		x.lead()
		defer x.end()
		d := job(1, "in_progress", "gpu", "gpu-1")
		d.Job.StartedAt = time.Now().Add(-time.Second)
		x.accept(d, d, job(2, "in_progress", "inset", "inset-1"), job(3, "in_progress", "gpu", "vm-1"))
		wait(10 * time.Second)
		x.accept(job(1, "completed", "gpu", "gpu-1"))
		wait(time.Second)
		want := []scaleset.JobEvent{
			{Type: scaleset.JobStarted, JobID: "1", Repository: "acme/web", RunnerID: 7, RunnerName: "gpu-1", At: d.Job.StartedAt},
			{Type: scaleset.JobCompleted, JobID: "1", Repository: "acme/web", RunnerID: 7, RunnerName: "gpu-1", Result: "succeeded"},
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		for i := range x.recorded[min(1, len(x.recorded)):] {
			x.recorded[i+1].At = time.Time{}
		}
		if diff := cmp.Diff(want, x.recorded); diff != "" {
			t.Errorf("recorded (-want +got):\n%s", diff)
		}
	})
}

func TestBoosts(t *testing.T) {
	at := func(d webhook.Delivery) webhook.Delivery {
		d.GUID, d.Connection, d.Repository.FullName = "g", keyOf("acme"), "acme/web"
		return d
	}
	check := at(webhook.Delivery{Event: "check_run", Action: "created", CheckRun: &webhook.CheckRun{Name: "build/linux", Status: "queued"}})
	pull := at(webhook.Delivery{Event: "pull_request", Action: "opened", Branch: "release/1"})
	push := at(webhook.Delivery{Event: "push", Branch: "main"})
	cases := map[string]struct {
		trigger v1alpha1.Boost
		event   webhook.Delivery
		want    bool
	}{
		"any check run":              {v1alpha1.Boost{Event: "check_run"}, check, true},
		"another event":              {v1alpha1.Boost{Event: "push"}, check, false},
		"its name, by pattern":       {v1alpha1.Boost{Event: "check_run", Names: []string{"test", "bui*"}}, check, true},
		"another name":               {v1alpha1.Boost{Event: "check_run", Names: []string{"test"}}, check, false},
		"its status":                 {v1alpha1.Boost{Event: "check_run", Status: "queued"}, check, true},
		"another status":             {v1alpha1.Boost{Event: "check_run", Status: "completed"}, check, false},
		"its action":                 {v1alpha1.Boost{Event: "check_run", Actions: []string{"created"}}, check, true},
		"another action":             {v1alpha1.Boost{Event: "check_run", Actions: []string{"completed"}}, check, false},
		"its repository":             {v1alpha1.Boost{Event: "push", Repositories: []string{"Acme/*"}}, push, true},
		"another repository":         {v1alpha1.Boost{Event: "push", Repositories: []string{"acme/api"}}, push, false},
		"its branch":                 {v1alpha1.Boost{Event: "push", Branches: []string{"main"}}, push, true},
		"another branch":             {v1alpha1.Boost{Event: "push", Branches: []string{"release/*"}}, push, false},
		"a push has no action":       {v1alpha1.Boost{Event: "push", Actions: []string{"created"}}, push, true},
		"a tag":                      {v1alpha1.Boost{Event: "push"}, at(webhook.Delivery{Event: "push"}), false},
		"where it is to be merged":   {v1alpha1.Boost{Event: "pull_request", Branches: []string{"release/*"}, Actions: []string{"opened"}}, pull, true},
		"merged elsewhere":           {v1alpha1.Boost{Event: "pull_request", Branches: []string{"main"}}, pull, false},
		"case of a branch matters":   {v1alpha1.Boost{Event: "push", Branches: []string{"Main"}}, push, false},
		"an event without its check": {v1alpha1.Boost{Event: "check_run"}, at(webhook.Delivery{Event: "check_run"}), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			compiled := newTrigger(tc.trigger)
			if got := compiled.fits(tc.event); got != tc.want {
				t.Errorf("it fits: %v", got)
			}
		})
	}
}

func TestBoostsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trigger := v1alpha1.Boost{Name: "pr", Event: "pull_request", Idle: new(int32(2)), Duration: &metav1.Duration{Duration: time.Minute}}
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu", func(p *v1alpha1.RunnerPool) {
			p.Spec.Demand = v1alpha1.DemandSpec{Boosts: []v1alpha1.Boost{trigger}}
		}))
		x.lead()
		defer x.end()
		idle := func() int32 { return *x.tracker.Reading(keyOf("gpu")).Signals[0].Idle }
		d := webhook.Delivery{GUID: "a", Connection: keyOf("acme"), Event: "pull_request", Action: "opened", At: time.Now(), Repository: webhook.Repository{FullName: "acme/web"}}
		x.accept(d, d)
		d.GUID = "b"
		x.accept(d)
		if idle() != 4 {
			t.Errorf("two events give %d idle runners, want 4", idle())
		}
		wait(61 * time.Second)
		if idle() != 0 {
			t.Errorf("after a minute they give %d", idle())
		}
		d.GUID = "late" // it was sent a minute ago
		x.accept(d)
		if idle() != 0 {
			t.Errorf("a late one gives %d", idle())
		}
	})
}
