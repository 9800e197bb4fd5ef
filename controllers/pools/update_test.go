// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/runners"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/rollout"
	"github.com/corral-dev/corral/internal/scaling"
)

// revisions returns the names of the ControllerRevisions.
func (b *bench) revisions() []string {
	b.t.Helper()
	list := &appsv1.ControllerRevisionList{}
	must(b.t, b.Client.List(b.t.Context(), list))
	var names []string
	for _, r := range list.Items {
		names = append(names, r.Name)
	}
	return names
}

// work gives a runner a job.
func (b *bench) work(name string) {
	if b.snapshot.Started == nil {
		b.snapshot.Started = map[string]scaleset.JobEvent{}
	}
	b.snapshot.Started[name] = scaleset.JobEvent{Type: scaleset.JobStarted, JobID: "job-" + name, RunnerName: name, At: b.now}
}

// edit changes the image and returns the previous revision.
func (b *bench) edit(image string) string {
	b.t.Helper()
	before := b.pool().Status.Revision
	b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Template = template(image) })
	return before
}

// made counts the runners of each revision that are not being ended.
func (b *bench) made() map[string]int {
	counts := map[string]int{}
	for _, r := range b.runners() {
		if r.DeletionTimestamp.IsZero() {
			counts[r.Spec.Revision]++
		}
	}
	return counts
}

// warm makes the pool keep idle runners, and runs those that exist.
func (b *bench) warm(idle int32) {
	b.t.Helper()
	b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Idle = &idle })
	b.start()
	b.reconcile()
	b.runAll()
}

// runAll runs the containers of all runners, and removes runners that are being ended.
func (b *bench) runAll() {
	b.t.Helper()
	for _, r := range b.runners() {
		switch {
		case !r.DeletionTimestamp.IsZero():
			r.Finalizers = nil
			must(b.t, b.Client.Update(b.t.Context(), &r))
		case r.Status.StartedAt == nil:
			b.run(r)
		}
	}
	b.reconcile()
}

// updated returns the condition Updated.
func (b *bench) updated() string {
	b.t.Helper()
	c := conditions.Get(b.pool(), v1alpha1.UpdatedCondition)
	if c == nil {
		return ""
	}
	return fmt.Sprintf("%s %s", c.Status, c.Reason)
}

// allEvents returns the events so far.
func (b *bench) allEvents() []string {
	var list []string
	recorder := b.Events.(*events.FakeRecorder)
	for {
		select {
		case e := <-recorder.Events:
			list = append(list, e)
		default:
			return list
		}
	}
}

func (b *bench) phase() v1alpha1.UpdatePhase {
	b.t.Helper()
	if u := b.pool().Status.Update; u != nil {
		return u.Phase
	}
	return ""
}

// While an update is held, and after it is rolled back, runners use the previous template. The status must report the
// version of that template.
func TestTheVersionToldIsThatOfTheTemplateInForce(t *testing.T) {
	for name, tc := range map[string]struct {
		update v1alpha1.UpdateSpec
		phase  v1alpha1.UpdatePhase
		told   bool
	}{
		"held":    {v1alpha1.UpdateSpec{Paused: true}, v1alpha1.UpdateHeld, true},
		"tried":   {v1alpha1.UpdateSpec{Canary: &v1alpha1.CanarySpec{Runners: intstr.FromInt32(1)}}, v1alpha1.UpdateCanary, true},
		"goes on": {v1alpha1.UpdateSpec{}, v1alpha1.UpdateRolling, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.warm(2)
			b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Update = tc.update })
			p := b.pool()
			p.Status.RunnerVersion = &v1alpha1.RunnerVersionStatus{Version: "2.330.0", Revision: p.Status.Revision, Latest: "2.331.0", UpdateBy: &metav1.Time{Time: b.now.Add(24 * time.Hour)}}
			must(t, b.Client.Status().Update(t.Context(), p))
			b.edit("runner:2")
			b.reconcile()
			b.reconcile()
			p = b.pool()
			if told := conditions.GetReason(p, v1alpha1.RunnerVersionCondition) == v1alpha1.RunnerOutdatedReason; told != tc.told || told != (p.Status.RunnerVersion != nil) || b.phase() != tc.phase {
				t.Errorf("%s: said %v, version %+v", b.phase(), conditions.Get(p, v1alpha1.RunnerVersionCondition), p.Status.RunnerVersion)
			}
		})
	}
}

func TestATemplateWhoseRunnersFailIsRolledBack(t *testing.T) {
	b := newBench(t)
	b.warm(2)
	good := b.edit("runner:bad")
	b.reconcile()
	bad := b.pool().Status.Revision
	if diff := cmp.Diff(map[string]int{good: 2, bad: 1}, b.made()); diff != "" || b.phase() != v1alpha1.UpdateRolling || b.updated() != "False Progressing" {
		t.Fatalf("%s, %s, runners (-want +got):\n%s", b.phase(), b.updated(), diff)
	}
	b.allEvents()
	b.fail(3, v1alpha1.CauseImagePull)
	b.snapshot.Assigned = 2
	b.reconcile()
	b.reconcile()
	if diff := cmp.Diff(map[string]int{good: 4}, b.made()); diff != "" || b.phase() != v1alpha1.UpdateRolledBack || b.updated() != "False RolledBack" {
		t.Errorf("%s, %s, runners (-want +got):\n%s", b.phase(), b.updated(), diff)
	}
	if last := b.announced[len(b.announced)-1]; last != 5 || !conditions.IsTrue(b.pool(), v1alpha1.HealthyCondition) {
		t.Errorf("%d announced, healthy %v", last, conditions.Get(b.pool(), v1alpha1.HealthyCondition))
	}
	if !conditions.IsStalled(b.pool()) || !strings.HasPrefix(b.readyReason(), "False RolledBack: Corral rolled back revision "+bad+": 3 runners in a row failed (ImagePull: no such image)") {
		t.Errorf("ready: %s", b.readyReason())
	}
	told := b.allEvents()
	if n := len(slices.DeleteFunc(slices.Clone(told), func(e string) bool { return !strings.HasPrefix(e, "Warning RolledBack") })); n != 1 {
		t.Errorf("told %q", told)
	}
	b.edit("runner:2")
	b.reconcile()
	if u := b.pool().Status.Update; u == nil || u.From != good || u.Phase != v1alpha1.UpdateRolling || conditions.IsStalled(b.pool()) {
		t.Errorf("the next update is %+v, ready %s", u, b.readyReason())
	}
}

// The memory of failures is lost with the process, but not the rollback that they caused.
func TestWhatIsRolledBackStaysSo(t *testing.T) {
	b := newBench(t)
	b.warm(1)
	good := b.edit("runner:bad")
	b.reconcile()
	b.fail(3, v1alpha1.CauseCrash)
	b.reconcile()
	b.memory = memory{}
	b.snapshot.Assigned = 1
	b.reconcile()
	if diff := cmp.Diff(map[string]int{good: 2}, b.made()); diff != "" || b.phase() != v1alpha1.UpdateRolledBack {
		t.Errorf("%s, runners (-want +got):\n%s", b.phase(), diff)
	}
	if !slices.Contains(b.revisions(), good) {
		t.Error("the revision in force is gone")
	}
}

// failAll makes three runners of a revision fail and deletes their objects.
func (b *bench) failAll(revision string) {
	b.t.Helper()
	for _, r := range b.runners() {
		r.Finalizers = nil
		must(b.t, b.Client.Update(b.t.Context(), &r))
		if r.DeletionTimestamp.IsZero() {
			must(b.t, b.Client.Delete(b.t.Context(), &r))
		}
	}
	for range scaling.Tolerated {
		b.results.Failures = append(b.results.Failures, runners.Failure{Revision: revision, Cause: v1alpha1.CauseImagePull, Message: "no such image", Began: b.now, At: b.now})
	}
}

// After a rollback, the image of the previous template may be gone, and the image of the new one may exist by then.
func TestBothTemplatesAreTriedWhileBothFail(t *testing.T) {
	for name, restarts := range map[string]bool{"the new one is known to fail": false, "its failures are forgotten": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.warm(1)
			previous := b.edit("runner:2")
			b.reconcile()
			latest := b.pool().Status.Revision
			b.fail(3, v1alpha1.CauseImagePull)
			b.reconcile()
			if restarts {
				b.memory = memory{}
			}
			b.now = b.now.Add(time.Hour)
			b.reconcile()
			if n := b.made()[latest]; n > 0 || b.phase() != v1alpha1.UpdateRolledBack {
				t.Fatalf("%s with %d runners of the new template, while the previous one works", b.phase(), n)
			}
			b.failAll(previous)
			b.reconcile()
			if diff := cmp.Diff(map[string]int{latest: 1}, b.made()); diff != "" || b.phase() != v1alpha1.UpdateRolledBack {
				t.Fatalf("once the previous one fails: %s, runners (-want +got):\n%s", b.phase(), diff)
			}
			if last := b.announced[len(b.announced)-1]; last != 1 {
				t.Errorf("%d jobs are accepted to try it with", last)
			}
			b.now = b.now.Add(scaling.ProbeMin)
			b.reconcile()
			b.reconcile()
			if diff := cmp.Diff(map[string]int{latest: 1, previous: 1}, b.made()); diff != "" {
				t.Errorf("when the probe of the previous one is due: runners (-want +got):\n%s", diff)
			}
			b.runAll()
			if b.phase() != v1alpha1.UpdateRolledBack {
				t.Errorf("%s before any did well", b.phase())
			}
			for _, r := range b.runners() {
				if r.Spec.Revision == latest {
					b.work(r.Name)
				}
			}
			b.snapshot.Assigned = 4
			b.reconcile()
			if n := b.made()[latest]; n != 5 || b.phase() != v1alpha1.UpdateRolling || conditions.IsStalled(b.pool()) {
				t.Errorf("once the new one did a job: %s with %d runners of it, ready %s", b.phase(), n, b.readyReason())
			}
		})
	}
}

func TestAPausedUpdateMakesRunnersOfTheFormerTemplate(t *testing.T) {
	b := newBench(t)
	b.warm(2)
	b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Update.Paused = true })
	former := b.edit("runner:2")
	b.snapshot.Assigned = 1
	b.allEvents()
	b.reconcile()
	if diff := cmp.Diff(map[string]int{former: 3}, b.made()); diff != "" || b.phase() != v1alpha1.UpdateHeld || b.updated() != "False UpdateHeld" {
		t.Errorf("%s, %s, runners (-want +got):\n%s", b.phase(), b.updated(), diff)
	}
	if told := b.allEvents(); !slices.ContainsFunc(told, func(e string) bool {
		return strings.HasPrefix(e, "Normal UpdateHeld Held from revision "+former) && strings.HasSuffix(e, pausedReason)
	}) {
		t.Errorf("told %q", told)
	}
	b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Update.Paused = false })
	b.reconcile()
	if n := b.made()[b.pool().Status.Revision]; n != 1 || b.phase() != v1alpha1.UpdateRolling {
		t.Errorf("%s with %d new runners", b.phase(), n)
	}
	for range 12 {
		b.runAll()
	}
	b.now = b.now.Add(v1alpha1.DefaultConnectDeadline)
	b.snapshot.Counted, b.snapshot.Statistics.IdleRunners = b.now, 3
	b.reconcile()
	if diff := cmp.Diff(map[string]int{b.pool().Status.Revision: 3}, b.made()); diff != "" || b.phase() != "" || b.updated() != "True Succeeded" {
		t.Errorf("%s, %s, runners (-want +got):\n%s", b.phase(), b.updated(), diff)
	}
	if told := b.allEvents(); !slices.ContainsFunc(told, func(e string) bool { return strings.HasPrefix(e, "Normal Succeeded the update from revision "+former) }) {
		t.Errorf("told %q", told)
	}
}

// canaryHadAJob is a pool with an update whose only canary had a job and is gone.
func canaryHadAJob(t *testing.T) (b *bench, current string) {
	t.Helper()
	b = newBench(t)
	b.change(func(p *v1alpha1.RunnerPool) {
		p.Spec.Update.Canary = &v1alpha1.CanarySpec{Runners: intstr.FromInt32(1), Pause: &metav1.Duration{Duration: time.Minute}}
	})
	b.start()
	former := b.edit("runner:2")
	b.snapshot.Assigned = 3
	b.reconcile()
	current = b.pool().Status.Revision
	if diff := cmp.Diff(map[string]int{former: 2, current: 1}, b.made()); diff != "" || b.phase() != v1alpha1.UpdateCanary {
		t.Fatalf("%s, runners (-want +got):\n%s", b.phase(), diff)
	}
	b.runAll()
	for _, r := range b.runners() {
		b.work(r.Name)
	}
	b.reconcile()
	b.snapshot.Assigned, b.snapshot.Started = 0, nil
	for _, r := range b.runners() {
		r.Finalizers = nil
		must(t, b.Client.Update(t.Context(), &r))
		must(t, b.Client.Delete(t.Context(), &r))
	}
	b.reconcile()
	if b.phase() != v1alpha1.UpdateCanary {
		t.Errorf("before the pause is over: %q", b.phase())
	}
	return b, current
}

// A canary's Runner is deleted after its job.
func TestCanariesThatHadAJobAreRemembered(t *testing.T) {
	b, current := canaryHadAJob(t)
	b.now = b.now.Add(time.Minute)
	b.snapshot.Assigned = 2
	b.reconcile()
	if diff := cmp.Diff(map[string]int{current: 2}, b.made()); diff != "" || b.phase() != "" {
		t.Errorf("after it: %q, runners (-want +got):\n%s", b.phase(), diff)
	}
}

func TestAnotherAttemptTriesCanariesAnew(t *testing.T) {
	b, current := canaryHadAJob(t)
	b.change(func(p *v1alpha1.RunnerPool) { p.Annotations = map[string]string{v1alpha1.RetryAnnotation: "again"} })
	b.now = b.now.Add(time.Minute)
	b.snapshot.Assigned = 2
	b.reconcile()
	if n := b.made()[current]; n != 1 || b.phase() != v1alpha1.UpdateCanary {
		t.Errorf("%q with %d runners of the new template", b.phase(), n)
	}
}

// Failing canaries do not reduce the capacity, because runners of the previous template replace them.
func TestCanariesThatFailHoldNothingBack(t *testing.T) {
	b := newBench(t)
	b.change(func(p *v1alpha1.RunnerPool) {
		p.Spec.Update.Canary = &v1alpha1.CanarySpec{Runners: intstr.FromInt32(1)}
	})
	b.warm(1)
	former := b.edit("runner:2")
	b.reconcile()
	b.fail(3, v1alpha1.CauseNeverConnected)
	b.snapshot.Assigned = 3
	b.reconcile()
	if last := b.announced[len(b.announced)-1]; last != 5 || !conditions.IsTrue(b.pool(), v1alpha1.HealthyCondition) || !conditions.IsReady(b.pool()) {
		t.Errorf("%d announced, ready: %s", last, b.readyReason())
	}
	if n := b.made()[former]; n != 3 || b.phase() != v1alpha1.UpdateCanary {
		t.Errorf("%s with %d runners of the former template", b.phase(), n)
	}
}

func TestAnUpdateSurvivesTheLossOfStatus(t *testing.T) {
	b := newBench(t)
	b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Update.Paused = true })
	b.start()
	b.snapshot.Assigned = 2
	b.reconcile()
	b.runAll()
	for _, r := range b.runners() {
		b.work(r.Name)
	}
	former := b.edit("runner:2")
	b.reconcile()
	p := b.pool()
	p.Status = v1alpha1.RunnerPoolStatus{}
	must(t, b.Client.Status().Update(t.Context(), p))
	b.memory = memory{}
	b.snapshot.Assigned = 3
	b.reconcile()
	if diff := cmp.Diff(map[string]int{former: 3}, b.made()); diff != "" || b.phase() != v1alpha1.UpdateHeld {
		t.Errorf("%s, runners (-want +got):\n%s", b.phase(), diff)
	}
}

// observe returns the observation of a pass now.
func (b *bench) observe() observation {
	b.t.Helper()
	o, err := b.Reconciler.observe(b.t.Context(), b.pool(), b.memory.of(key))
	must(b.t, err)
	return o
}

func TestPoliciesNarrowAnUpdate(t *testing.T) {
	asked := rollout.Bounds{Strategy: v1alpha1.RollingUpdate, MaxSurge: 1}
	cases := map[string]struct {
		limits updateLimits
		denied bool // the new template
		want   v1alpha1.UpdatePhase
		made   int // number of runners of the new template
	}{
		"no answer":        {want: v1alpha1.UpdateRolling, made: 1},
		"denied":           {denied: true, want: v1alpha1.UpdateHeld},
		"held":             {limits: updateLimits{hold: "no updates on Friday"}, want: v1alpha1.UpdateHeld},
		"as declared":      {limits: updateLimits{asked: asked, answer: asked}, want: v1alpha1.UpdateRolling, made: 1},
		"none ends":        {limits: updateLimits{asked: asked, answer: rollout.Bounds{Strategy: v1alpha1.OnIdle, MaxSurge: 1}}, want: v1alpha1.UpdateRolling},
		"canaries first":   {limits: updateLimits{asked: asked, answer: rollout.Bounds{Strategy: v1alpha1.RollingUpdate, MaxSurge: 1, Canary: 1}}, want: v1alpha1.UpdateCanary, made: 1},
		"nothing may move": {limits: updateLimits{asked: asked, answer: rollout.Bounds{Strategy: v1alpha1.RollingUpdate}}, want: v1alpha1.UpdateHeld},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.warm(2)
			former := b.edit("runner:2")
			o := b.observe()
			if c, bounds, ok := o.change(); !ok || c.From != former || c.To != o.template.revision || c.Phase != "" || bounds.MaxSurge != 1 || c.MaxSurge != 1 || c.Strategy != "RollingUpdate" {
				t.Errorf("asked about %+v, %v", c, ok)
			}
			if tc.denied {
				o.revisions.denied[o.template.revision] = "no such images"
			}
			d := decide(o, tc.limits, policy.Scaling{Scale: policy.Scale{Max: 5, Idle: 2}}, 0)
			if tc.denied && (d.step.Of(0) != former || d.plan.Reason != "0 jobs + 2 idle") {
				t.Errorf("held back: %s; runners are made of %s", d.plan.Reason, d.step.Of(0))
			}
			if got := d.step.State; got.Phase != tc.want || int(d.plan.Create) != tc.made {
				t.Errorf("%s: %s, %d made", got.Phase, got.Reason, d.plan.Create)
			}
		})
	}
}

func TestPoliciesAreAskedOnlyAboutAnUpdateUnderWay(t *testing.T) {
	b := newBench(t)
	b.warm(1)
	o := b.observe()
	if c, _, ok := o.change(); ok {
		t.Errorf("asked about %+v", c)
	}
	o.pool.Status.Update = &v1alpha1.UpdateStatus{From: "linux-old", To: o.template.revision, Phase: v1alpha1.UpdateCanary, Since: metav1.Time{Time: b.now}}
	if c, _, ok := o.change(); !ok || c.Phase != "Canary" || c.Since != b.now.UnixNano() || c.Updated != 1 {
		t.Errorf("asked about %+v, %v", c, ok)
	}
	o.pool.Status.Update.Phase = v1alpha1.UpdateRolledBack
	if c, _, ok := o.change(); ok {
		t.Errorf("asked about %+v", c)
	}
	o.memory.health.circuits["linux-old"] = scaling.Circuit{Failures: scaling.Tolerated} // then it may continue
	if c, _, ok := o.change(); !ok || c.Phase != "RolledBack" {
		t.Errorf("asked about %+v, %v", c, ok)
	}
}

// If a pass fails before planning, the next pass must not conclude that the update is done.
func TestAnUpdateBeginsOnceItIsPlanned(t *testing.T) {
	b := newBench(t)
	b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Update.Paused = true })
	b.start()
	former := b.edit("runner:2")
	b.broken = true
	if _, err := b.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err == nil || b.pool().Status.Revision != former {
		t.Errorf("revision %s, %v", b.pool().Status.Revision, err)
	}
	b.broken = false
	b.snapshot.Assigned = 1
	b.reconcile()
	if diff := cmp.Diff(map[string]int{former: 1}, b.made()); diff != "" || b.phase() != v1alpha1.UpdateHeld {
		t.Errorf("%s, runners (-want +got):\n%s", b.phase(), diff)
	}
}

// shareClaims runs as many runners as there are claims, and removes those that are being ended; the others wait. It returns
// how many can take jobs.
func (b *bench) shareClaims(n int) (available int) {
	b.t.Helper()
	for _, r := range b.runners() {
		if !r.DeletionTimestamp.IsZero() {
			r.Finalizers = nil
			must(b.t, b.Client.Update(b.t.Context(), &r))
		}
	}
	for _, r := range b.runners() {
		if r.Status.StartedAt != nil {
			available++
		}
	}
	for _, r := range b.runners() {
		switch {
		case r.Status.StartedAt != nil:
		case available < n:
			b.run(r)
			available++
		default:
			r.Status.State, r.Status.Cause, r.Status.Reason = v1alpha1.RunnerPending, v1alpha1.CauseCache, "none of at most 2 claims is free"
			must(b.t, b.Client.Status().Update(b.t.Context(), &r))
		}
	}
	return available
}

// A new runner would wait for the claim of an old one, which would wait for the new one to run. A persistent one would
// never have a cache.
func TestAnUpdateGoesOnThoughOldRunnersHaveAllClaims(t *testing.T) {
	waits := &v1alpha1.CacheSpec{Size: "1Gi", MountPath: "/cache", MaxClaims: 2, OnMissing: v1alpha1.WaitForClaim}
	stays := &v1alpha1.CacheSpec{Size: "1Gi", MountPath: "/cache", MaxClaims: 2}
	for name, tc := range map[string]struct {
		cache   *v1alpha1.CacheSpec
		desired int32
		// peak is the maximum number of runners at once, and rest the final number: no more are created while one waits.
		peak, rest int
		persists   bool
	}{
		"they wait":                        {waits, 2, 2, 2, false},
		"more are wanted than have claims": {waits, 4, 4, 3, false},
		"one that stays":                   {stays, 1, 2, 1, true},
		"all that stay":                    {stays, 2, 2, 2, true},
		"claims are left":                  {waits, 1, 2, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.Cluster, b.REST, b.reading = "cluster", serving(true), webhookReading(0, 0)
			b.declare(func(s *v1alpha1.RunnerPoolSpec) {
				s.Cache, s.Scale.Min = tc.cache, &tc.desired
				if tc.persists {
					s.Registration, s.Lifetime = v1alpha1.RegisterREST, v1alpha1.LifetimePersistent
				}
			})
			if !tc.persists {
				b.start()
			}
			b.reconcile()
			most := min(2, int(tc.desired))
			if n := b.shareClaims(2); n != most {
				t.Fatalf("%d run", n)
			}
			b.now = b.now.Add(time.Minute)
			b.edit("runner:2")
			b.reconcile()
			want, peak := map[string]int{b.pool().Status.Revision: tc.rest}, 0
			for range 12 {
				all := 0
				for _, n := range b.made() {
					all += n
				}
				peak = max(peak, all)
				if n := b.shareClaims(2); n < most-1 {
					t.Errorf("%d are there for jobs", n)
				}
				b.now = b.now.Add(15 * time.Second)
				b.reconcile()
			}
			if diff := cmp.Diff(want, b.made()); diff != "" || peak > tc.peak {
				t.Errorf("at most %d runners at once; in the end (-want +got):\n%s", peak, diff)
			}
		})
	}
}

// The pool may see a crash before it is counted, and an end with exit code 0 before it is known that there was no job.
func TestARunnerThatEndedWithoutAJobProvesNothing(t *testing.T) {
	for name, clean := range map[string]bool{"with an error": false, "cleanly": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.warm(1)
			before := b.edit("runner:2")
			b.uncounted = true
			b.reconcile()
			for _, r := range b.runners() {
				if r.Spec.Revision != before {
					r.Status.StartedAt, r.Status.EndedAt, r.Status.EndedClean = &metav1.Time{Time: b.now}, &metav1.Time{Time: b.now}, clean
					must(t, b.Client.Status().Update(t.Context(), &r))
				}
			}
			b.reconcile()
			b.reconcile()
			if made := b.made()[before]; made != 1 || b.pool().Status.Update == nil {
				t.Errorf("%d runners of the former template; the update is %+v", made, b.pool().Status.Update)
			}
		})
	}
}

// A new template is not trusted earlier than the update trusts it: a runner that crashes half a minute after it became idle
// causes a rollback.
func TestATemplateWhoseRunnersCrashAfterAWhileIsRolledBack(t *testing.T) {
	b := newBench(t)
	b.warm(2)
	before := b.edit("runner:2")
	for range rollout.Tolerated {
		b.reconcile()
		b.runAll()
		b.now = b.now.Add(30 * time.Second)
		b.reconcile()
		if b.phase() != v1alpha1.UpdateRolling {
			t.Fatalf("%q", b.phase())
		}
		for _, r := range b.runners() {
			if r.Spec.Revision == before || !r.DeletionTimestamp.IsZero() {
				continue
			}
			f := b.failed(r.Name)
			f.Revision, f.Began = r.Spec.Revision, b.now.Add(-30*time.Second)
			b.results.Failures = []runners.Failure{f}
			must(t, b.Client.Delete(t.Context(), &r))
			break
		}
	}
	b.reconcile()
	if b.phase() != v1alpha1.UpdateRolledBack {
		t.Errorf("%q after %d failures", b.phase(), rollout.Tolerated)
	}
}
