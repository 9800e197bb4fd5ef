// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/harness"
	"github.com/corral-dev/corral/sim/world"
)

// start runs a controller that the test may stop itself.
func (w *story) start(t *testing.T, args ...string) *world.Controller {
	t.Helper()
	c, err := w.RunController(t.Context(), w.Binary, slices.Concat(w.flags, args)...)
	must(t, err)
	t.Cleanup(func() {
		c.Kill()
		harness.ShowLog(t, c)
	})
	return c
}

// untilDone waits until at least n of the jobs are completed.
func (w *story) untilDone(t *testing.T, ids []string, n int) {
	t.Helper()
	mine := map[string]bool{}
	for _, id := range ids {
		mine[id] = true
	}
	must(t, w.GitHub.WaitUntil(t.Context(), func() bool {
		done := 0
		for _, j := range w.GitHub.Jobs() {
			if mine[j.ID] && j.State == githubsim.JobCompleted {
				done++
			}
		}
		return done >= n
	}))
}

func TestAControllerKilledInABurstLosesNothing(t *testing.T) {
	w := newStory(t, "crash")
	must(t, w.Connect(t.Context(), "crash", "acme", "crash-org"))
	first := w.start(t)
	must(t, w.Client.Create(t.Context(), newPool("crash", "linux", "acme", func(p *v1alpha1.RunnerPool) { *p.Spec.Scale.Max = 24 })))
	ids := w.addJobs(t, "crash-org", "linux", 80, 200*time.Millisecond)
	w.untilDone(t, ids, 16)
	first.Kill()
	w.start(t)
	w.allDone(t, ids)
	for _, j := range w.GitHub.Jobs() {
		if j.Attempts > 1 {
			t.Errorf("job %s was run %d times", j.ID, j.Attempts)
		}
	}
	w.cleanUp(t, "crash")
}

// github.com rejects a new session while the one of the crashed controller is open, and does not report its owner.
func TestAControllerRestartedInPlaceGoesOnWithItsSession(t *testing.T) {
	t.Parallel()
	w := newStoryOn(t, githubsim.Options{}, "--watch-namespaces=again")
	w.elect(t, "again-lease")
	must(t, w.Connect(t.Context(), "again", "acme", "again-org"))
	first, err := w.RunControllerAs(t.Context(), "corral-0", w.Binary, w.flags...)
	must(t, err)
	must(t, w.Client.Create(t.Context(), newPool("again", "linux", "acme")))
	session := func() (id string) {
		eventually(t, func(ctx context.Context) error {
			set := &v1alpha1.RunnerScaleSet{}
			if err := w.Client.Get(ctx, key("again", "linux"), set); err != nil {
				return err
			}
			if id = set.Status.SessionID; !conditions.IsReady(set) || id == "" {
				return fmt.Errorf("the scale set isn't ready: %+v", set.Status)
			}
			return nil
		})
		return id
	}
	before := session()
	first.Kill()
	ids := w.addJobs(t, "again-org", "linux", 3, time.Millisecond)
	second, err := w.RunControllerAs(t.Context(), "corral-0", w.Binary, w.flags...)
	must(t, err)
	t.Cleanup(func() {
		second.Kill()
		harness.ShowLog(t, second)
	})
	w.allDone(t, ids)
	if after := session(); after != before {
		t.Errorf("the session was %s and is %s", before, after)
	}
	w.cleanUp(t, "again")
}

// github.com sometimes reports 0 idle runners for hours. The controller looks the runners up individually, and
// keeps them.
func TestIdleRunnersThatGitHubDoesNotCountGoOn(t *testing.T) {
	t.Parallel()
	w := newStoryOn(t, githubsim.Options{IdleUncounted: true}, "--watch-namespaces=uncounted", "--leader-elect=false")
	must(t, w.Connect(t.Context(), "uncounted", "acme", "uncounted-org"))
	w.controller(t)
	must(t, w.Client.Create(t.Context(), newPool("uncounted", "linux", "acme", func(p *v1alpha1.RunnerPool) {
		p.Spec.Scale.Idle, p.Spec.Deadlines = new(int32(2)), v1alpha1.DeadlinesSpec{Connect: &metav1.Duration{Duration: 10 * time.Second}}
	})))
	must(t, w.GitHub.WaitUntil(t.Context(), func() bool { return w.GitHub.Report().Requests[githubsim.EndpointGetAgent] >= 2 }))
	ids := w.addJobs(t, "uncounted-org", "linux", 2, time.Millisecond)
	w.allDone(t, ids)
	for _, j := range w.GitHub.Jobs() {
		if j.Runner == "" || !strings.HasSuffix(j.Runner, "-1") && !strings.HasSuffix(j.Runner, "-2") {
			t.Errorf("job %s was run by %s, not by one of the first two runners", j.ID, j.Runner)
		}
	}
	w.cleanUp(t, "uncounted")
}

func TestTheLossOfAllStatusIsRecovered(t *testing.T) {
	w := newStory(t, "loss")
	must(t, w.Connect(t.Context(), "loss", "acme", "loss-org"))
	first := w.start(t)
	idle := int32(2)
	must(t, w.Client.Create(t.Context(), newPool("loss", "linux", "acme", func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Idle = &idle })))
	busy := w.addJobs(t, "loss-org", "linux", 3, harness.LongJob)
	var before []string
	eventually(t, func(ctx context.Context) (err error) {
		before, err = settled(ctx, "loss", 3, 2)
		return err
	})
	sets := len(w.GitHub.Report().ScaleSets)
	made := w.GitHub.Report().RunnersMade
	must(t, first.Stop())

	wipe(t, "loss")
	w.start(t)
	eventually(t, func(ctx context.Context) error {
		after, err := settled(ctx, "loss", 3, 2)
		if err == nil && fmt.Sprint(after) != fmt.Sprint(before) {
			return fmt.Errorf("the runners were %v and are %v", before, after)
		}
		return err
	})
	if r := w.GitHub.Report(); len(r.ScaleSets) != sets || r.RunnersMade != made {
		t.Errorf("there were %d scale sets and %d registrations, now %d and %d", sets, made, len(r.ScaleSets), r.RunnersMade)
	}
	harness.CutShort(t, w.GitHub, busy...)
	w.cleanUp(t, "loss")
}

// settled returns the names of a namespace's runners, or an error unless the given numbers of them are busy and
// idle.
func settled(ctx context.Context, namespace string, busy, idle int) ([]string, error) {
	list := &v1alpha1.RunnerList{}
	if err := shared.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	states := map[v1alpha1.RunnerState]int{}
	var names []string
	for _, r := range list.Items {
		states[r.Status.State]++
		names = append(names, fmt.Sprintf("%s=%d", r.Name, r.Status.RunnerID))
	}
	if states[v1alpha1.RunnerBusy] != busy || states[v1alpha1.RunnerIdle] != idle || len(list.Items) != busy+idle {
		return nil, fmt.Errorf("runners are %v", states)
	}
	return names, nil
}

// wipe removes the status of all objects, as a restore from a backup does.
func wipe(t *testing.T, namespace string) {
	t.Helper()
	lists := []client.ObjectList{&v1alpha1.GitHubConnectionList{}, &v1alpha1.RunnerPoolList{}, &v1alpha1.RunnerList{}, &v1alpha1.RunnerScaleSetList{}}
	for _, list := range lists {
		must(t, shared.Client.List(t.Context(), list, client.InNamespace(namespace)))
		must(t, eachItem(list, func(obj kube.Object) error {
			return shared.Client.Status().Patch(t.Context(), obj, client.RawPatch("application/merge-patch+json", []byte(`{"status":null}`)))
		}))
	}
}
