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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/policy"
)

// put loads a RunnerPolicy with one module.
func (b *bench) put(name, module string) {
	b.t.Helper()
	source := policy.Source{Kind: policy.KindRunnerPolicy, Namespace: "ci", Name: name, Modules: map[string]string{name + ".rego": module}}
	loaded, diagnostics := policy.Load(source)
	if len(diagnostics) > 0 {
		loaded = policy.Broken(source, diagnostics)
	}
	b.Policies.Put(loaded, source)
}

func limit(maximum int, more string) string {
	return fmt.Sprintf("package corral.scaling\n\nlimit contains {\"field\": \"max\", \"atMost\": %d, \"reason\": \"few\"%s}\n", maximum, more)
}

func deny(image string) string {
	return fmt.Sprintf("package corral.template\n\ndeny contains {\"msg\": \"no\", \"path\": \"spec.containers[0].image\", \"remediation\": \"use another\"} if input.pod.spec.containers[0].image == %q\n", image)
}

const brokenModule = "package corral.scaling\n\nlimit contains {\n"

func (b *bench) lastAnnounced() int { return b.announced[len(b.announced)-1] }

func TestAPolicyBoundsAPool(t *testing.T) {
	b := newBench(t)
	b.put("p", limit(2, ""))
	b.start()
	b.snapshot.Assigned = 4
	b.reconcile()
	d := b.pool().Status.Decision
	if len(b.runners()) != 4 || b.lastAnnounced() != 2 || d.Limits.GetMax() != 2 || d.ID == "" || d.PolicyDigest == "" {
		t.Errorf("%d runners for jobs accepted before, announced %d, decision %+v", len(b.runners()), b.lastAnnounced(), d)
	}
	if want := "max 5 → 2 by RunnerPolicy/ci/p corral.scaling.limit (p.rego:3): few"; !strings.Contains(d.Reason, want) {
		t.Errorf("reason %q", d.Reason)
	}
	if !conditions.IsTrue(b.pool(), v1alpha1.PolicyCondition) {
		t.Errorf("conditions %+v", b.pool().Status.Conditions)
	}
}

func TestALimitHasJobsWait(t *testing.T) {
	b := newBench(t)
	b.put("p", limit(2, `, "assignedJobs": "Wait"`))
	b.start()
	b.snapshot.Assigned = 4
	b.reconcile()
	if d := b.pool().Status.Decision; len(b.runners()) != 2 || d.JobsHeld != 2 {
		t.Errorf("%d runners, decision %+v", len(b.runners()), d)
	}
}

func TestAPoolIsDecidedOnAgainWhenALimitEnds(t *testing.T) {
	b := newBench(t)
	b.put("p", limit(2, fmt.Sprintf(`, "until": %d`, b.now.Add(7*time.Second).UnixNano())))
	b.start()
	result, err := b.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	if err != nil || result.RequeueAfter != 7*time.Second {
		t.Errorf("looks again in %s, %v", result.RequeueAfter, err)
	}
}

func TestWhatWasDecidedLastHoldsWhileAPolicyCannotBeAsked(t *testing.T) {
	b := newBench(t)
	b.put("p", limit(2, ""))
	b.start()
	b.put("p", brokenModule)
	b.snapshot.Assigned = 2
	b.reconcile()
	check := func(when string) {
		t.Helper()
		if d := b.pool().Status.Decision; len(b.runners()) != 2 || b.lastAnnounced() != 2 || d.Limits.GetMax() != 2 {
			t.Errorf("%s: %d runners, announced %d, decision %+v", when, len(b.runners()), b.lastAnnounced(), d)
		}
		if r := b.readyReason(); !strings.Contains(r, v1alpha1.PolicyFailedReason) || !strings.Contains(r, "RunnerPolicy/ci/p: NotLoaded") {
			t.Errorf("%s: ready: %s", when, r)
		}
	}
	check("at once")
	b.memory = memory{} // as after a restart
	b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Max = new(int32(50)) })
	b.reconcile()
	check("after a restart, although more is declared")
	b.put("p", limit(3, ""))
	b.reconcile()
	if b.lastAnnounced() != 3 || !conditions.IsReady(b.pool()) {
		t.Errorf("mended: announced %d, ready: %s", b.lastAnnounced(), b.readyReason())
	}
}

// A team must not be able to disable the guard rail with a failing policy of its own.
func TestAFailingPolicyDoesNotSwitchAnotherOff(t *testing.T) {
	b := newBench(t)
	b.start()
	b.put("p", brokenModule)
	source := policy.Source{Kind: policy.KindClusterRunnerPolicy, Name: "guard", Modules: map[string]string{"g.rego": limit(1, "")}}
	guard, diagnostics := policy.Load(source)
	if len(diagnostics) > 0 {
		t.Fatal(diagnostics)
	}
	b.Policies.Put(guard, source)
	b.reconcile()
	if b.lastAnnounced() != 1 {
		t.Errorf("announced %d", b.lastAnnounced())
	}
	b.Policies.Remove("ClusterRunnerPolicy/guard")
	b.reconcile()
	if b.lastAnnounced() != 5 {
		t.Errorf("announced %d after the guard is gone, although 5 were accepted before", b.lastAnnounced())
	}
}

// The rule allows each of the pools under a shared ceiling to use all that the others leave.
func TestAShareIsHeldAtWhatThePoolHas(t *testing.T) {
	b := newBench(t)
	b.put("p", "package corral.scaling\n\nlimit contains {\"field\": \"max\", \"atMost\": 4 - input.usage.namespace.granted, \"reason\": \"ceiling\"}\n")
	b.start()
	b.snapshot.Assigned = 1
	b.reconcile()
	if b.lastAnnounced() != 4 {
		t.Fatalf("announced %d", b.lastAnnounced())
	}
	b.put("p", brokenModule)
	b.reconcile()
	if b.lastAnnounced() != 1 {
		t.Errorf("announced %d", b.lastAnnounced())
	}
	b.snapshot.Assigned = 0
	b.reconcile()
	b.reconcile()
	if b.lastAnnounced() != 1 {
		t.Errorf("announced %d once its job is done: it would never get another", b.lastAnnounced())
	}
}

// The status is lost, and a policy cannot be evaluated.
func TestAPoolWithoutLimitsEndsNothing(t *testing.T) {
	b := newBench(t)
	b.warm(2)
	b.put("p", brokenModule)
	b.memory = memory{}
	p := b.pool()
	p.Status.Decision = nil
	must(t, b.Client.Status().Update(t.Context(), p))
	b.now = b.now.Add(time.Hour)
	b.reconcile()
	for _, r := range b.runners() {
		if !r.DeletionTimestamp.IsZero() {
			t.Errorf("%s is being ended", r.Name)
		}
	}
	if b.lastAnnounced() != 0 {
		t.Errorf("announced %d", b.lastAnnounced())
	}
}

// A rule may return another time, or a time in the very near future, at each evaluation.
func TestATimeThatMovesCausesNeitherWritesNorHaste(t *testing.T) {
	b := newBench(t)
	b.put("p", "package corral.scaling\n\nlimit contains {\"field\": \"max\", \"atMost\": 2, \"reason\": \"few\", \"until\": input.now + 1000}\n")
	b.start()
	before := b.pool().ResourceVersion
	b.now = b.now.Add(time.Minute)
	result, err := b.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	if err != nil || result.RequeueAfter < time.Second || b.pool().ResourceVersion != before {
		t.Errorf("looks again in %s, %v; it was written: %t", result.RequeueAfter, err, b.pool().ResourceVersion != before)
	}
}

func TestAPoolThatPoliciesNeverDecidedOnStartsNothing(t *testing.T) {
	b := newBench(t)
	b.put("p", brokenModule)
	b.snapshot.Assigned = 2
	b.reconcile()
	b.reconcile()
	if len(b.runners()) != 0 || b.announced != nil && b.lastAnnounced() != 0 {
		t.Errorf("%d runners, announced %v", len(b.runners()), b.announced)
	}
	if r := b.readyReason(); !strings.Contains(r, v1alpha1.PolicyPendingReason) {
		t.Errorf("ready: %s", r)
	}
}

func TestOfAPoolWhoseOnlyTemplateIsDeniedNothingGoesOn(t *testing.T) {
	b := newBench(t)
	b.put("p", deny("runner:1"))
	b.reconcile()
	b.reconcile()
	for _, condition := range []string{v1alpha1.ReadyCondition, v1alpha1.PolicyCondition} {
		if message := conditions.GetMessage(b.pool(), condition); !strings.HasPrefix(message, "spec.template.spec.containers[0].image: no ") {
			t.Errorf("%s: %s", condition, message)
		}
	}
}

func TestADeniedTemplateIsNotTakenAndTheFormerGoesOn(t *testing.T) {
	b := newBench(t)
	b.put("p", deny("runner:2"))
	b.start()
	former := b.pool().Status.Revision
	b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Template = template("runner:2") })
	b.snapshot.Assigned = 1
	b.reconcile()
	want := "False PolicyDenied: revision " + former + " stays in force: spec.template.spec.containers[0].image: no [RunnerPolicy/ci/p corral.template.deny (p.rego:3)]; use another"
	if r := b.readyReason(); r != want {
		t.Errorf("ready: %s", r)
	}
	p := b.pool()
	if r := b.runners(); len(r) != 1 || r[0].Spec.Revision != former || p.Status.Revision != former || p.Status.Policy == nil || p.Status.Policy.Allowed {
		t.Errorf("runners %+v, status %+v", r, p.Status)
	}
}

func TestRunnersOfATemplateThatIsDeniedLaterEndUnlessTheyHaveAJob(t *testing.T) {
	b := newBench(t)
	b.start()
	b.snapshot.Assigned = 2
	b.reconcile()
	b.runAll()
	busy := b.runners()[0].Name
	b.work(busy)
	b.put("p", deny("runner:1"))
	b.reconcile()
	for _, r := range b.runners() {
		if ending := !r.DeletionTimestamp.IsZero(); ending == (r.Name == busy) {
			t.Errorf("%s: ending is %t, and %s has a job", r.Name, ending, busy)
		}
	}
	if b.lastAnnounced() != 1 {
		t.Errorf("announced %d", b.lastAnnounced())
	}
	if r := b.readyReason(); !strings.Contains(r, v1alpha1.PolicyDeniedReason) {
		t.Errorf("ready: %s", r)
	}
	if why := b.pool().Status.Decision.Reason; strings.Count(why, "the template") != 1 {
		t.Errorf("it says twice what holds it back: %s", why)
	}
	warnings := 0 // of the pool; its runners end for the same cause
	for recorder := b.Events.(*events.FakeRecorder); len(recorder.Events) > 0; {
		warnings += strings.Count(<-recorder.Events, "Warning PolicyDenied")
	}
	if warnings != 1 {
		t.Errorf("%d Warnings", warnings)
	}
}

// Otherwise each of a hundred pools would repeat what their policy reports once.
func TestAPolicyThatCannotBeLoadedIsNoEventOfItsPools(t *testing.T) {
	b := newBench(t)
	b.start()
	recorder := b.Events.(*events.FakeRecorder)
	for len(recorder.Events) > 0 {
		<-recorder.Events
	}
	b.put("p", "package corral.scaling\n\nlimit contains")
	b.reconcile()
	if r := b.readyReason(); !strings.Contains(r, "PolicyFailed: the last decision stays in force: RunnerPolicy/ci/p: NotLoaded: ") {
		t.Errorf("ready: %s", r)
	}
	if len(recorder.Events) > 0 {
		t.Errorf("an event %s", <-recorder.Events)
	}
}

func TestADeniedTemplateStaysDeniedWhileThePolicyCannotBeAsked(t *testing.T) {
	b := newBench(t)
	b.start()
	b.put("p", deny("runner:1"))
	b.snapshot.Assigned = 1
	b.reconcile()
	b.put("p", brokenModule)
	b.reconcile()
	b.reconcile()
	if len(b.runners()) != 0 || b.lastAnnounced() != 0 {
		t.Errorf("%d runners, announced %d: %s", len(b.runners()), b.lastAnnounced(), b.readyReason())
	}
	b.put("p", deny("another"))
	b.reconcile()
	if len(b.runners()) != 1 || b.lastAnnounced() != 5 {
		t.Errorf("mended: %d runners, announced %d: %s", len(b.runners()), b.lastAnnounced(), b.readyReason())
	}
}

func TestAPolicyHoldsAnUpdate(t *testing.T) {
	b := newBench(t)
	b.start()
	b.snapshot.Assigned = 1
	b.reconcile()
	former := b.pool().Status.Revision
	b.put("p", "package corral.update\n\nrollout contains {\"hold\": true, \"reason\": \"it is Friday\"}\n")
	b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Template = template("runner:2") })
	b.reconcile()
	b.snapshot.Assigned = 3
	b.reconcile()
	for _, r := range b.runners() {
		if r.Spec.Revision != former {
			t.Errorf("%s is of revision %s", r.Name, r.Spec.Revision)
		}
	}
	c := conditions.Get(b.pool(), v1alpha1.UpdatedCondition)
	if c == nil || c.Reason != v1alpha1.UpdateHeldReason || !strings.Contains(c.Message, "p.rego:3): it is Friday") {
		t.Errorf("condition %+v", c)
	}
	b.Policies.Remove("RunnerPolicy/ci/p")
	b.snapshot.Assigned = 5
	b.reconcile()
	if u := b.pool().Status.Update; u == nil || u.Phase != v1alpha1.UpdateRolling {
		t.Errorf("the thaw: %+v", u)
	}
}

// connect changes the spec of the pool's connection.
func (b *bench) connect(do func(*v1alpha1.GitHubConnectionSpec)) {
	b.t.Helper()
	conn := &v1alpha1.GitHubConnection{}
	must(b.t, b.Client.Get(b.t.Context(), types.NamespacedName{Namespace: "ci", Name: "acme"}, conn))
	do(&conn.Spec)
	must(b.t, b.Client.Update(b.t.Context(), conn))
}

func TestAConnectionThatHasOtherPodsMadeIsJudgedAnew(t *testing.T) {
	b := newBench(t)
	b.put("p", "package corral.template\n\ndeny contains \"a Secret\" if input.pod.spec.volumes[_].secret\n")
	b.start()
	before := b.revisions()
	ca := &v1alpha1.ConnectionCA{ConfigMapRef: &v1alpha1.LocalObjectReference{Name: "ca"}}
	b.connect(func(c *v1alpha1.GitHubConnectionSpec) { c.CA = ca })
	b.reconcile()
	if r := b.readyReason(); !strings.Contains(r, "PolicyDenied: a Secret") {
		t.Errorf("with certificates: %s", r)
	}
	b.connect(func(c *v1alpha1.GitHubConnectionSpec) { c.CA = nil })
	b.reconcile()
	if r := b.readyReason(); strings.Contains(r, "PolicyDenied") {
		t.Errorf("without: %s", r)
	}
	if after := b.revisions(); !slices.Equal(before, after) {
		t.Errorf("revisions %v, then %v", before, after)
	}
}

// The API server checks the pod that runners get, and the pool's owner learns what the pod cannot reach.
func TestTheDryRunHasTheNetworkOfTheConnection(t *testing.T) {
	b := newBench(t)
	b.connect(func(c *v1alpha1.GitHubConnectionSpec) {
		c.CA, c.Proxy = &v1alpha1.ConnectionCA{}, &v1alpha1.ConnectionProxy{Scope: v1alpha1.ProxyControllerAndRunners}
	})
	b.change(func(p *v1alpha1.RunnerPool) {
		p.Spec.Template.Raw = []byte(`{"spec":{"containers":[{"name":"runner","image":"i"},{"name":"x","image":"i","volumeMounts":[{"name":"own","mountPath":"/usr/local/share/ca-certificates"}]}],"volumes":[{"name":"own","emptyDir":{}}]}}`)
	})
	b.start()
	if len(b.tried) != 1 || len(b.tried[0].Spec.Volumes) != 2 || len(b.tried[0].Spec.Containers[1].Env) != 6 {
		t.Errorf("tried %+v", b.tried)
	}
	const want = "; x: not given the connection's certificates, as the template mounts something at /usr/local/share/ca-certificates/corral, above or below"
	if said := conditions.GetMessage(b.pool(), v1alpha1.TemplateValidCondition); !strings.HasSuffix(said, want) {
		t.Errorf("told: %s", said)
	}
}

// A policy that takes too much is one cause, whichever limit it exceeds first.
func TestAPolicyThatTakesTooMuchIsOneCause(t *testing.T) {
	failure := func(kind policy.FailureKind, isLate bool) []v1alpha1.Cause {
		return catalog.Plain(causesOf(catalog.PolicyUnavailable, []policy.Failure{{Policy: "RunnerPolicy/ci/p", Kind: kind, Message: "why", IsLate: isLate}}))
	}
	timedOut := failure(policy.TimedOut, false)
	if !catalog.Same(timedOut, failure(policy.EvaluationError, true)) || catalog.Same(timedOut, failure(policy.EvaluationError, false)) || catalog.Same(timedOut, failure(policy.Quarantined, false)) {
		t.Error("causes are the same that aren't, or differ that don't")
	}
	if s := timedOut[0].Subject; *s != (v1alpha1.CauseSubject{Kind: "RunnerPolicy", Namespace: "ci", Name: "p"}) {
		t.Errorf("the subject is %+v", s)
	}
	cluster := causesOf(catalog.PolicyUnavailable, []policy.Failure{{Policy: "ClusterRunnerPolicy/p"}})
	if s := cluster[0].Subject; *s != (v1alpha1.CauseSubject{Kind: "ClusterRunnerPolicy", Name: "p"}) {
		t.Errorf("the subject is %+v", s)
	}
}
