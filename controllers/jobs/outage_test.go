// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/webhook"
)

func TestARestartForgetsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		push := v1alpha1.Boost{Name: "morning", Event: "push", Idle: new(int32(3))}
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu", func(p *v1alpha1.RunnerPool) { p.Spec.Demand.Boosts = []v1alpha1.Boost{push} }), runnerOf("gpu-1", "gpu"))
		x.lead()
		x.accept(job(1, "queued", "gpu"), job(2, "queued", "gpu"), job(2, "in_progress", "gpu", "gpu-1"), job(3, "completed", "gpu"))
		x.accept(webhook.Delivery{GUID: "p", Connection: keyOf("acme"), Event: "push", Branch: "main", At: time.Now(), Repository: webhook.Repository{FullName: "acme/web"}})
		before := x.tracker.Reading(keyOf("gpu"))
		x.end()
		x.lead()
		defer x.end()
		after := x.tracker.Reading(keyOf("gpu"))
		for i := range after.Signals {
			after.Signals[i].At = before.Signals[i].At
		}
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("(-before +after):\n%s", diff)
		}
		x.accept(job(3, "queued", "gpu")) // late
		x.want("gpu", 2)
		if *after.Signals[1].Idle != 3 {
			t.Errorf("boost is %d, want 3", *after.Signals[1].Idle)
		}
		x.tracker.Retain(keyOf("gpu"), func(string) bool { return false })
		x.want("gpu", 1)
	})
}

// What was accepted and not written down when the process was killed, and what was sent while nobody was there, is asked for.
func TestAKillLosesNoAcceptedEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		x.lead()
		wait(time.Minute)
		for i := range int64(500) {
			d := job(i, "queued", "gpu")
			d.GUID = fmt.Sprint("a", i)
			x.accept(d)
			x.gh.event(d, 202)
			if i%10 == 0 {
				wait(20 * time.Millisecond)
			}
		}
		x.kill()
		for i := range int64(100) {
			x.gh.event(job(1000+i, "queued", "gpu"), 503)
			wait(100 * time.Millisecond)
		}
		x.lead()
		defer x.end()
		wait(5 * time.Second)
		x.want("gpu", 600)
		if x.gh.count("jobs") != 0 {
			t.Error("a repository was polled")
		}
	})
}

func TestTwentyMinutesOfLostDeliveriesAreCaughtUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		x.lead()
		defer x.end()
		wait(time.Minute)
		x.gh.edit(func() { x.gh.fails = github.NewError(github.KindUnavailable, "listing", 502, 0, "away", nil) })
		for i := range int64(240) { // one each five seconds, of which half have ended since
			x.gh.event(job(i, "queued", "gpu"), 504)
			if i%2 == 0 {
				d := job(i, "completed", "gpu")
				x.gh.event(d, 0)
			}
			x.gh.event(webhook.Delivery{GUID: fmt.Sprint("star", i), Event: "star", Action: "created"}, 504)
			wait(5 * time.Second)
		}
		x.want("gpu", 0)
		x.gh.edit(func() { x.gh.fails = nil })
		calls := x.gh.count("payload")
		wait(2 * time.Minute)
		x.want("gpu", 120)
		if got := x.gh.count("payload") - calls; got != 360 {
			t.Errorf("%d deliveries were read, want each of a job once: 360", got)
		}
		if x.gh.count("jobs") != 0 {
			t.Error("a repository was polled")
		}
	})
}

// What GitHub takes for delivered may have been accepted by somebody else, such as a proxy.
func TestADeliveryThatSomebodyElseAcceptedIsTakenIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		x.lead()
		defer x.end()
		wait(10 * time.Minute)
		d := job(1, "queued", "gpu")
		x.accept(d)
		x.gh.event(d, 202)
		x.gh.event(job(2, "queued", "gpu"), 200)
		wait(2 * time.Minute)
		x.want("gpu", 2)
		if n := x.gh.count("payload"); n != 1 {
			t.Errorf("%d deliveries were read, want the one that didn't come in", n)
		}
	})
}

func TestADeliveryWithoutAPayloadIsSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		x.lead()
		defer x.end()
		wait(time.Minute)
		x.gh.event(job(1, "queued", "gpu"), 500)
		x.gh.event(job(2, "queued", "gpu"), 500)
		x.gh.mu.Lock()
		x.gh.payloads[1] = nil
		x.gh.payloads[2] = []byte(`{"action": 5}`)
		x.gh.mu.Unlock()
		wait(5 * time.Minute)
		if diff := cmp.Diff([]int64{1}, x.gh.again); diff != "" {
			t.Errorf("asked for again (-want +got):\n%s", diff)
		}
		if n := x.gh.count("payload"); n != 2 {
			t.Errorf("%d were read, want each once", n)
		}
	})
}

func TestJobsThatWaitForLongAreComparedWithGitHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newPlace(t, connOf("acme", "acme"), poolOf("gpu"))
		x.lead()
		defer x.end()
		x.tracker.AtMax(keyOf("gpu"), false)
		x.accept(job(1, "queued", "gpu"), job(2, "queued", "gpu"))
		x.gh.edit(func() {
			x.gh.jobs["acme/web"] = []rest.Job{{ID: 1, Status: "queued", Labels: []string{"gpu"}}, {ID: 3, Status: "queued", Labels: []string{"gpu"}}, {ID: 4, Status: "queued", Labels: []string{"other"}}}
		})
		wait(4 * time.Minute)
		x.want("gpu", 2)
		if n := x.gh.count("jobs"); n != 0 {
			t.Errorf("%d looks at jobs that are no more than four minutes old", n)
		}
		wait(2 * time.Minute)
		x.want("gpu", 2) // 1 and 3
		wait(58 * time.Minute)
		x.want("gpu", 2) // they don't expire while GitHub lists them
		if n := x.gh.count("jobs"); n > 13 {
			t.Errorf("%d looks in an hour", n)
		}
		x.gh.edit(func() { x.gh.fails = github.NewError(github.KindForbidden, "listing", 403, 0, "no", nil) })
		wait(50 * time.Minute)
		x.want("gpu", 2)
		wait(15 * time.Minute)
		x.want("gpu", 0)
	})
}
