// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/poolstatus"
)

// newPersistentPool is a bench with two persistent runners: the first has a job, the second has none.
func newPersistentPool(t *testing.T, spec *v1alpha1.PersistentSpec) (b *bench, busy, idle v1alpha1.Runner) {
	t.Helper()
	b = newBench(t)
	b.Cluster, b.REST = "cluster", serving(true)
	b.declare(func(s *v1alpha1.RunnerPoolSpec) {
		s.Registration, s.Lifetime, s.Persistent, s.Scale.Min = v1alpha1.RegisterREST, v1alpha1.LifetimePersistent, spec, new(int32(2))
	})
	b.reading = webhookReading(0, 0)
	b.reconcile()
	for _, r := range b.runners() {
		b.run(r)
	}
	b.now = b.now.Add(time.Hour)
	busy, idle = b.runners()[0], b.runners()[1]
	busy.Status.Job = &v1alpha1.JobReference{ID: "7", StartedAt: &metav1.Time{Time: b.now}}
	must(t, b.Client.Status().Update(t.Context(), &busy))
	return b, busy, idle
}

// replaced removes a runner that is being ended, and lets the new ones run.
func (b *bench) replaced(name string) {
	b.t.Helper()
	for _, r := range b.runners() {
		switch {
		case r.Name == name && !r.DeletionTimestamp.IsZero():
			r.Finalizers = nil
			must(b.t, b.Client.Update(b.t.Context(), &r))
		case r.Status.StartedAt == nil:
			b.run(r)
		}
	}
}

// stays reports whether a runner is not being ended.
func (b *bench) stays(name string) bool {
	return slices.ContainsFunc(b.runners(), func(r v1alpha1.Runner) bool { return r.Name == name && r.DeletionTimestamp.IsZero() })
}

func TestAPersistentRunnerThatHasWorkedLongEnoughIsReplacedBetweenTwoJobs(t *testing.T) {
	for name, tc := range map[string]struct {
		spec    *v1alpha1.PersistentSpec
		replace bool
	}{
		"by its jobs":      {&v1alpha1.PersistentSpec{MaxJobs: new(int32(3))}, true},
		"by its age":       {&v1alpha1.PersistentSpec{MaxAge: &metav1.Duration{Duration: time.Hour}}, true},
		"it is young":      {&v1alpha1.PersistentSpec{MaxAge: &metav1.Duration{Duration: 2 * time.Hour}}, false},
		"it has done less": {&v1alpha1.PersistentSpec{MaxJobs: new(int32(4))}, false},
		"never":            {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			b, busy, idle := newPersistentPool(t, tc.spec)
			for _, r := range []*v1alpha1.Runner{&busy, &idle} {
				r.Status.JobsDone = 3
				must(t, b.Client.Status().Update(t.Context(), r))
			}
			b.reading = webhookReading(1, 0)
			b.reconcile()
			if !b.stays(busy.Name) || b.stays(idle.Name) == tc.replace {
				t.Fatalf("with a job: %t, without: %t", b.stays(busy.Name), b.stays(idle.Name))
			}
			if n := len(b.runners()); tc.replace && n != 3 || !tc.replace && n != 2 {
				t.Errorf("%d runners", n)
			}
			busy.Status.Job.CompletedAt = &metav1.Time{Time: b.now}
			must(t, b.Client.Status().Update(t.Context(), &busy))
			b.reconcile()
			if !b.stays(busy.Name) {
				t.Error("both are replaced at once")
			}
			b.replaced(idle.Name)
			b.reconcile()
			if b.stays(busy.Name) == tc.replace {
				t.Errorf("after its job it stays: %t", b.stays(busy.Name))
			}
		})
	}
}

// A runner that waits for room, longer than other runners may live, must not prevent their replacement, because they make
// the room.
func TestAPersistentRunnerThatIsPendingHoldsUpTheReplacementOfOthersUnlessItWaitsForRoom(t *testing.T) {
	for cause, replace := range map[v1alpha1.RunnerCause]bool{
		"": false, v1alpha1.CauseGitHub: false, v1alpha1.CauseImagePull: false,
		v1alpha1.CauseQuota: true, v1alpha1.CauseUnschedulable: true, v1alpha1.CauseCache: true,
	} {
		o := observation{}
		for i, state := range []v1alpha1.RunnerState{v1alpha1.RunnerIdle, v1alpha1.RunnerPending} {
			x := observed{runner: &v1alpha1.Runner{ObjectMeta: metav1.ObjectMeta{Name: string(rune('a' + i))}}, verdict: poolstatus.Assessment{State: state}}
			o.runners = append(o.runners, x)
		}
		o.runners[0].retirement, o.runners[1].verdict.Cause = retirement{why: "it is old"}, cause
		if got := o.retiring()["a"]; got != replace {
			t.Errorf("cause %q: the other is replaced: %t", cause, got)
		}
	}
}

func TestAPersistentRunnerThatIsFreeAgainIsSurplusOrTakesTheNextJob(t *testing.T) {
	b, busy, idle := newPersistentPool(t, nil)
	b.declare(func(s *v1alpha1.RunnerPoolSpec) { s.Scale.Min = nil })
	b.reading = webhookReading(2, 0)
	b.reconcile()
	if n := len(b.runners()); n != 2 || b.pool().Status.Runners.Busy != 1 || !busy.Spec.REST.Persistent {
		t.Fatalf("%d runners for two jobs: %+v", n, b.pool().Status.Runners)
	}
	busy.Status.Job.CompletedAt = &metav1.Time{Time: b.now}
	must(t, b.Client.Status().Update(t.Context(), &busy))
	b.reading = webhookReading(1, 0)
	b.reconcile()
	if c := b.pool().Status.Runners; c.Idle != 2 || c.Finished != 0 || b.stays(idle.Name) {
		t.Errorf("it is free: %+v, the one that waits for longer stays: %t", c, b.stays(idle.Name))
	}
	b.now = b.now.Add(time.Minute)
	b.reading = webhookReading(0, 0)
	b.reconcile()
	if b.stays(busy.Name) {
		t.Error("it is surplus and stays")
	}
}

func TestAnUpdateWaitsForThePersistentRunnersJob(t *testing.T) {
	b, busy, idle := newPersistentPool(t, nil)
	b.change(func(p *v1alpha1.RunnerPool) {
		p.Spec.Template, p.Spec.Update.Strategy = template("runner:2"), v1alpha1.Recreate
	})
	b.reading = webhookReading(1, 0)
	b.reconcile()
	if b.stays(idle.Name) || !b.stays(busy.Name) || b.pool().Status.Update == nil {
		t.Fatalf("with a job: %t, without: %t, update %+v", b.stays(busy.Name), b.stays(idle.Name), b.pool().Status.Update)
	}
	busy.Status.Job.CompletedAt = &metav1.Time{Time: b.now}
	must(t, b.Client.Status().Update(t.Context(), &busy))
	b.reconcile()
	if b.stays(busy.Name) {
		t.Error("it outlives its job")
	}
}
