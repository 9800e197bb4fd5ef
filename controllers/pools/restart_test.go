// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/policies"
	"github.com/corral-dev/corral/controllers/runners"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/meter"
	"github.com/corral-dev/corral/internal/scaling"
	"github.com/corral-dev/corral/test/reword"
)

// restart discards the state of the process: its policies, sessions and memory. It returns the events from then on.
func (b *bench) restart() chan string {
	b.memory, b.snapshot, b.results = memory{}, scaleset.Snapshot{}, runners.Results{}
	b.Policies = policies.NewEngine(func() time.Time { return b.now })
	recorder := events.NewFakeRecorder(100)
	b.Events = recorder
	return recorder.Events
}

// declarePolicy creates a policy object, so that the pool waits for it to be loaded.
func (b *bench) declarePolicy(name, module string) {
	b.t.Helper()
	must(b.t, b.Client.Create(b.t.Context(), &v1alpha1.RunnerPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: name}, Spec: v1alpha1.RunnerPolicySpec{PolicyRules: v1alpha1.PolicyRules{Modules: map[string]string{name + ".rego": module}}},
	}))
}

// states returns functions that bring a pool into states that a restart must not change.
func states() map[string]func(*bench) {
	return map[string]func(*bench){
		"ready":  func(*bench) {},
		"full":   func(b *bench) { b.snapshot.Assigned, b.snapshot.Statistics.AvailableJobs = 2, 3 },
		"denied": func(b *bench) { b.put("q", deny("runner:1")) },
		"refused": func(b *bench) {
			b.put("q", deny("runner:2"))
			b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Template = template("runner:2") })
		},
		"held": func(b *bench) { b.put("p", brokenModule) },
		"suspended": func(b *bench) {
			b.change(func(p *v1alpha1.RunnerPool) { p.Spec.StopPolicy = v1alpha1.StopDrain })
		},
		"pods that are slow": func(b *bench) {
			for n := range 3 {
				b.results.Failures = []runners.Failure{{Runner: b.stem() + strconv.Itoa(n+1), Revision: b.pool().Status.Revision, Cause: v1alpha1.CauseSlow, Message: "not running", Began: b.now, At: b.now}}
				b.reconcile()
			}
		},
		"interrupted": func(b *bench) { b.interrupt(v1alpha1.CauseNode, "Evicted", "n1", "n2", "n1") },
		"failing": func(b *bench) {
			for range 3 {
				b.results.Failures = append(b.results.Failures, runners.Failure{Revision: b.pool().Status.Revision, Cause: v1alpha1.CauseImagePull, Message: "no such image (a)", Began: b.now, At: b.now})
			}
		},
	}
}

// settled returns a pool in a state.
func settled(t *testing.T, settle func(*bench)) *bench {
	t.Helper()
	b := newBench(t)
	b.Reporter.Now = func() time.Time { return b.now }
	b.declarePolicy("p", limit(2, ""))
	b.declarePolicy("q", "")
	b.put("p", limit(2, ""))
	b.put("q", deny("other:1"))
	b.start()
	settle(b)
	b.reconcile()
	b.reconcile()
	return b
}

// A process that has just started reports nothing new about a pool until it knows more, whatever the pool's state was.
func TestARestartChangesNoConditionOfAPool(t *testing.T) {
	for name, settle := range states() {
		t.Run(name, func(t *testing.T) {
			b := settled(t, settle)
			before := b.pool().Status
			told := b.restart()
			b.reconcile()
			if diff := cmp.Diff(before.Conditions, b.pool().Status.Conditions); diff != "" {
				t.Errorf("the restart changed conditions (-before +after):\n%s", diff)
			}
			if now := b.pool().Status; now.GetJobs() != before.GetJobs() || now.JobsWaiting != before.JobsWaiting {
				t.Errorf("%d jobs, %d wait; before: %d, %d", now.GetJobs(), now.JobsWaiting, before.GetJobs(), before.JobsWaiting)
			}
			for len(told) > 0 {
				t.Errorf("it tells: %s", <-told)
			}
		})
	}
}

// brief returns what programs read of a status: everything but sentences.
func brief(s *v1alpha1.RunnerPoolStatus) any {
	var all []string
	for _, c := range s.Conditions {
		all = append(all, fmt.Sprintln(c.Type, c.Status, c.Reason, c.LastTransitionTime))
	}
	return []any{all, s.Causes, s.Health, s.Update, s.Decision}
}

// Another release may change the wording of every message. Its process continues with the recorded status: circuits stay
// open, the next attempt happens as planned, and no event is repeated.
func TestARewordedCatalogChangesNothingAtARestart(t *testing.T) {
	for name, settle := range states() {
		t.Run(name, func(t *testing.T) {
			same, reworded := settled(t, settle), settled(t, settle)
			for _, b := range []*bench{same, reworded} {
				if b == reworded {
					reword.All(t)
				}
				snapshot, loaded := b.snapshot, b.Policies
				told := b.restart()
				b.snapshot, b.Policies = snapshot, loaded
				b.reconcile()
				b.now = b.now.Add(scaling.ProbeMin / 2)
				b.reconcile()
				for len(told) > 0 {
					t.Errorf("it tells: %s", <-told)
				}
			}
			if diff := cmp.Diff(brief(&same.pool().Status), brief(&reworded.pool().Status)); diff != "" {
				t.Errorf("another wording makes a difference (-same +reworded):\n%s", diff)
			}
			if n, m := len(same.runners()), len(reworded.runners()); n != m || !cmp.Equal(same.announced, reworded.announced) {
				t.Errorf("%d and %d runners, announced %v and %v", n, m, same.announced, reworded.announced)
			}
		})
	}
}

// Policies that are being loaded are a problem only if that takes long.
func TestPoliciesThatAreBeingLoadedAreNoFailureYet(t *testing.T) {
	b := newBench(t)
	b.declarePolicy("p", limit(2, ""))
	b.reconcile()
	if got := b.readyReason(); !strings.HasPrefix(got, "Unknown Progressing: policies are being loaded") {
		t.Errorf("a new pool says %s", got)
	}
	b.now = b.now.Add(loadedWithin)
	b.reconcile()
	if got := b.readyReason(); !strings.HasPrefix(got, "False PolicyPending: policies are being loaded") {
		t.Errorf("after %s it says %s", loadedWithin, got)
	}
	b.put("p", limit(2, ""))
	b.start()
	if !conditions.IsReady(b.pool()) {
		t.Errorf("once they are there it says %s", b.readyReason())
	}
}

// An open circuit stays open in the next process, and closes with the first healthy runner.
func TestARestartKeepsHoldingBackRunnersThatFail(t *testing.T) {
	b := newBench(t)
	b.start()
	for range 3 {
		b.results.Failures = append(b.results.Failures, runners.Failure{Revision: b.pool().Status.Revision, Cause: v1alpha1.CauseCrash, Message: "exit code 1", Began: b.now, At: b.now})
	}
	b.reconcile()
	b.restart()
	b.snapshot = scaleset.Snapshot{State: scaleset.Listening, Known: true, Assigned: 5}
	b.reconcile()
	if n := len(b.runners()); n > 1 || conditions.IsTrue(b.pool(), v1alpha1.HealthyCondition) {
		t.Errorf("%d runners are started, %s", n, b.readyReason())
	}
	b.results.Worked = map[string]runners.Worked{b.pool().Status.Revision: {Began: time.Now().Add(time.Minute)}}
	b.reconcile()
	if !conditions.IsTrue(b.pool(), v1alpha1.HealthyCondition) {
		t.Errorf("a runner did well, and it says %+v", conditions.Get(b.pool(), v1alpha1.HealthyCondition))
	}
}

// left returns the metric of runners that the deleted pool left; 0 without a series.
func left(t *testing.T) float64 {
	t.Helper()
	if testutil.CollectAndCount(leftGauge) == 0 {
		return 0
	}
	return testutil.ToFloat64(leftGauge.WithLabelValues(key.Namespace, key.Name))
}

func TestWhatADeletedPoolLeavesIsToldOnce(t *testing.T) {
	b := newBench(t)
	b.start()
	b.snapshot.Assigned = 2
	b.reconcile()
	busy := b.runners()[0]
	busy.Status.State = v1alpha1.RunnerBusy
	must(t, b.Client.Status().Update(t.Context(), &busy))
	recorder := events.NewFakeRecorder(100)
	b.Events = recorder
	must(t, b.Client.Delete(t.Context(), b.pool()))
	for range 2 {
		b.reconcile()
	}
	want := "Normal Deleted deleted at " + b.now.UTC().Format(time.RFC3339) + "; 1 runner finishes its job, 1 more to end: " + busy.Name
	if got := <-recorder.Events; got != want || len(recorder.Events) > 0 {
		t.Errorf("told %q, and %d more; want %q", got, len(recorder.Events), want)
	}
	if n := left(t); n != 2 {
		t.Errorf("the metric has %v runners", n)
	}
	for _, r := range b.runners() {
		r.Finalizers = nil
		must(t, b.Client.Update(t.Context(), &r))
		must(t, b.Client.Delete(t.Context(), &r))
	}
	b.reconcile()
	if n := left(t); n != 0 {
		t.Errorf("all are gone, and the metric has %v runners", n)
	}
}

// A pool that is deleted in the foreground stays until its jobs are done. Its earlier status no longer applies.
func TestAPoolThatIsBeingDeletedSaysNothingOfThePast(t *testing.T) {
	b := newBench(t)
	b.start()
	b.snapshot.Assigned, b.snapshot.Statistics.AvailableJobs = 5, 4
	b.reconcile()
	busy := b.runners()[0]
	busy.Status.State = v1alpha1.RunnerBusy
	must(t, b.Client.Status().Update(t.Context(), &busy))
	b.change(func(p *v1alpha1.RunnerPool) { p.Finalizers = []string{metav1.FinalizerDeleteDependents} })
	b.reconcile()
	if !conditions.IsTrue(b.pool(), v1alpha1.SaturatedCondition) {
		t.Fatalf("not full: %+v", b.pool().Status)
	}
	must(t, b.Client.Delete(t.Context(), b.pool()))
	b.reconcile()
	s := b.pool().Status
	if d := s.Decision; d.Announced != 0 || d.Desired != 1 || d.Reason != "deleted: runners with a job finish it" || s.GetJobs() != 1 || s.JobsWaiting != 0 || s.Runners.Busy != 1 {
		t.Errorf("status %+v, decision %+v", s, d)
	}
	for _, c := range s.Conditions {
		if c.Reason != v1alpha1.DrainingReason && c.Type != v1alpha1.ReconcilingCondition {
			t.Errorf("it says %s %s: %s", c.Type, c.Reason, c.Message)
		}
	}
	for _, g := range []*meter.Owned[prometheus.Gauge]{fullGauge, waitingGauge, announced} {
		if g.DeleteLabelValues(key.Namespace, key.Name) {
			t.Error("there is a series of a pool that takes no jobs")
		}
	}
}
