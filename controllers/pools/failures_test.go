// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/runners"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/poolstatus"
	"github.com/corral-dev/corral/internal/scaling"
)

// failed returns a failure of a runner as the runner controller records it.
func (b *bench) failed(name string) runners.Failure {
	return runners.Failure{
		Runner: name, Revision: b.pool().Status.Revision, Cause: v1alpha1.CauseCrash, Message: "Error (exit code 1)", Node: "n1",
		Exit: &v1alpha1.RunnerExit{Actor: v1alpha1.ActorRunner, Code: 1, Node: "n1", Message: "no such file: run.sh"}, Began: b.now, At: b.now,
	}
}

// names returns the names of the failed runners in the status.
func (b *bench) names() string {
	var names []string
	for _, f := range b.pool().Status.Failures {
		names = append(names, f.Runner)
	}
	return strings.Join(names, " ")
}

func TestTheLastFailuresAreInTheStatus(t *testing.T) {
	b := newBench(t)
	b.start()
	b.now = b.now.Add(time.Second / 2)
	b.results.Failures = []runners.Failure{b.failed("a")}
	b.reconcile()
	want := []v1alpha1.RunnerFailure{{
		Runner: "a", Time: metav1.Unix(1_000_000, 0), Revision: b.pool().Status.Revision, Cause: v1alpha1.CauseCrash, Reason: "Error (exit code 1)", Node: "n1",
		Exit: &v1alpha1.RunnerExit{Actor: v1alpha1.ActorRunner, Code: 1, Message: "no such file: run.sh"},
	}}
	if diff := cmp.Diff(want, b.pool().Status.Failures); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	written := b.pool().ResourceVersion
	b.reconcile()
	if now := b.pool().ResourceVersion; now != written {
		t.Error("a pass without a failure writes the status")
	}
	b.results.Failures = []runners.Failure{b.failed("b"), b.failed("c")}
	b.reconcile()
	if got := b.names(); got != "c b a" {
		t.Errorf("failures of %s", got)
	}
	b.memory = memory{} // another process
	b.results.Failures = []runners.Failure{b.failed("d"), b.failed("e"), b.failed("f")}
	b.reconcile()
	if got := b.names(); got != "f e d c b" {
		t.Errorf("after a restart, failures of %s", got)
	}
}

// GitHub's image has no entrypoint: without a command, a runner ends at once with exit code 0.
func TestTheCauseNamesAMissingCommand(t *testing.T) {
	const missing = `set command: ["/home/runner/run.sh"]`
	for name, tc := range map[string]struct {
		container string
		clean     bool
		named     bool
	}{
		"no command":        {`"image": "ghcr.io/actions/actions-runner:2.330.0"`, true, true},
		"a command":         {`"image": "ghcr.io/actions/actions-runner:2.330.0", "command": ["/home/runner/run.sh"]`, true, false},
		"another image":     {`"image": "acme/runner:1"`, true, false},
		"another exit code": {`"image": "ghcr.io/actions/actions-runner:2.330.0"`, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.change(func(p *v1alpha1.RunnerPool) {
				p.Spec.Template.Raw = []byte(`{"spec": {"containers": [{"name": "runner", ` + tc.container + `}]}}`)
			})
			b.start()
			for _, runner := range []string{"a", "b", "c"} {
				f := b.failed(runner)
				f.Clean, f.Message = tc.clean, "ended without a job"
				b.results.Failures = append(b.results.Failures, f)
			}
			b.reconcile()
			if got := b.readyReason(); !strings.Contains(got, "ended without a job") || strings.Contains(got, missing) != tc.named {
				t.Errorf("Ready is %s", got)
			}
		})
	}
}

func TestAFailureIsNotLostWithThePassThatFails(t *testing.T) {
	b := newBench(t)
	b.start()
	b.results.Failures = []runners.Failure{b.failed("a")}
	b.claimsBroken = true
	if _, err := b.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err == nil {
		t.Fatal("the pass went well")
	}
	b.claimsBroken = false
	b.reconcile()
	if got := b.names(); got != "a" {
		t.Errorf("failures of %q", got)
	}
}

// The output of containers and the taints of nodes are shortened in the status of a pool.
func TestAFailureInTheStatusIsSmall(t *testing.T) {
	long := strings.Repeat("ü", 1000)
	f := failureOf(runners.Failure{Runner: "a", Message: long, Exit: &v1alpha1.RunnerExit{Code: 137, Message: long + "the end", Taints: []string{long, long, long, long}}})
	if n := len(f.String()); n > 1300 {
		t.Errorf("%d bytes", n)
	}
	if !strings.HasSuffix(f.Exit.Message, "the end") || len(f.Exit.Taints) != 3 || !strings.HasPrefix(f.Reason, "üü") {
		t.Errorf("%+v", f)
	}
}

func TestARunnerThatThePoolGivesUpIsAFailureToo(t *testing.T) {
	b := newBench(t)
	b.start()
	b.snapshot.Assigned = 1
	b.reconcile()
	b.put("p", deny("runner:1"))
	b.reconcile()
	got := b.pool().Status.Failures
	if len(got) != 1 || got[0].Runner != b.runners()[0].Name || got[0].Cause != v1alpha1.CauseRefused || got[0].Exit != nil {
		t.Errorf("failures %+v", got)
	}
}

// The pool may see that a pod crashed before the runner controller has recorded it.
func TestARunnerThatFailedIsNotReplacedBeforeItsFailureIsCounted(t *testing.T) {
	for name, then := range map[string]func(*bench){
		"it is counted":     func(b *bench) { b.uncounted = false },
		"nobody records it": func(b *bench) { b.now = b.now.Add(passing) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.start()
			b.snapshot.Assigned, b.uncounted = 1, true
			b.reconcile()
			crashed := b.runners()[0]
			crashed.Status.StartedAt, crashed.Status.EndedAt = &metav1.Time{Time: b.now}, &metav1.Time{Time: b.now}
			must(t, b.Client.Status().Update(t.Context(), &crashed))
			b.reconcile()
			before := len(b.runners())
			then(b)
			b.reconcile()
			if after := len(b.runners()); before != 1 || after != 2 {
				t.Errorf("%d runners before, %d after", before, after)
			}
		})
	}
}

func TestEachRunnerThatFailedHasALineInTheLog(t *testing.T) {
	b := newBench(t)
	b.start()
	var lines []string
	logger := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	passing := b.failed("b")
	passing.Cause, passing.Exit, passing.Message = v1alpha1.CauseRemoved, nil, "the pod is gone"
	b.results.Failures = []runners.Failure{b.failed("a"), passing}
	for range 2 {
		_, err := b.Reconcile(log.IntoContext(t.Context(), logger), ctrl.Request{NamespacedName: key})
		must(t, err)
	}
	var got []string
	for _, l := range lines {
		if strings.Contains(l, "Runner failed") {
			got = append(got, l)
		}
	}
	revision := b.pool().Status.Revision
	want := []string{
		fmt.Sprintf(`"level"=0 "msg"="Runner failed" "runner"="a" "revision"=%q "cause"="Crash" "reason"="Error (exit code 1)" "node"="n1" "hadJob"=false "exit"="exit code 1; last output: no such file: run.sh"`, revision),
		fmt.Sprintf(`"level"=0 "msg"="Runner failed" "runner"="b" "revision"=%q "cause"="Removed" "reason"="the pod is gone" "node"="n1" "hadJob"=false`, revision),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// retry requests a retry with the annotation.
func (b *bench) retry(value string) {
	b.t.Helper()
	p := b.pool()
	metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.RetryAnnotation, value)
	must(b.t, b.Client.Update(b.t.Context(), p))
}

func TestAPoolThatIsAskedToTriesAgainAtOnce(t *testing.T) {
	b := newBench(t)
	b.start()
	b.snapshot.Assigned = 2
	b.fail(3, v1alpha1.CauseCrash)
	b.reconcile()
	if n := len(b.runners()); n != 0 || conditions.IsTrue(b.pool(), v1alpha1.HealthyCondition) {
		t.Fatalf("%d runners, %s", n, b.readyReason())
	}
	b.retry("1")
	b.reconcile()
	if p := b.pool(); len(b.runners()) != 2 || !conditions.IsTrue(p, v1alpha1.HealthyCondition) || p.Status.LastHandledRetryAt != "1" || b.lastAnnounced() != 5 {
		t.Errorf("%d runners, handled %q, announced %d, %s", len(b.runners()), p.Status.LastHandledRetryAt, b.lastAnnounced(), b.readyReason())
	}
	b.now = b.now.Add(time.Minute)
	b.fail(3, v1alpha1.CauseCrash)
	b.reconcile()
	if conditions.IsTrue(b.pool(), v1alpha1.HealthyCondition) {
		t.Error("one request is acted on twice")
	}
	p := b.pool()
	p.Status.LastHandledRetryAt = "" // until the status is written
	must(t, b.Client.Status().Update(t.Context(), p))
	b.reconcile()
	if conditions.IsTrue(b.pool(), v1alpha1.HealthyCondition) {
		t.Error("one request is acted on again before the status is written")
	}
	b.retry("2")
	b.reconcile()
	if !conditions.IsTrue(b.pool(), v1alpha1.HealthyCondition) {
		t.Errorf("another request is not acted on: %s", b.readyReason())
	}
}

func TestAnUpdateThatWasRolledBackIsTriedAgainWhenAsked(t *testing.T) {
	b := newBench(t)
	b.warm(2)
	good := b.edit("runner:2")
	b.reconcile()
	b.fail(3, v1alpha1.CauseImagePull)
	b.allEvents()
	b.reconcile()
	b.reconcile()
	if b.phase() != v1alpha1.UpdateRolledBack {
		t.Fatal(b.phase())
	}
	if told := strings.Join(b.allEvents(), "\n"); strings.Contains(told, "; update to revision") || !strings.Contains(told, "; the update to revision "+b.pool().Status.Revision+" was rolled back") {
		t.Errorf("told %s", told)
	}
	b.runAll()
	b.retry("1")
	b.reconcile()
	to := b.pool().Status.Revision
	if u := b.pool().Status.Update; b.phase() != v1alpha1.UpdateRolling || u.From != good || b.made()[to] != 1 {
		t.Errorf("update %+v, runners %v", u, b.made())
	}
	b.fail(3, v1alpha1.CauseImagePull)
	b.reconcile()
	b.memory = memory{} // another process
	b.reconcile()
	if b.phase() != v1alpha1.UpdateRolledBack {
		t.Errorf("one request is acted on twice: %s, %s", b.phase(), b.readyReason())
	}
}

// keep creates a kept pod of a runner with a number, and returns its name.
func (b *bench) keep(number int, until time.Duration) string {
	b.t.Helper()
	name := fmt.Sprint(podspec.NameStem("linux", "p1"), number)
	must(b.t, b.Client.Create(b.t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ci", Name: name, UID: types.UID(name), Labels: map[string]string{v1alpha1.PoolLabel: "linux"},
		Annotations: map[string]string{v1alpha1.KeptUntilAnnotation: b.now.Add(until).Format(time.RFC3339)},
	}}))
	return name
}

// kept returns the names of the pods that still exist.
func (b *bench) kept() string {
	b.t.Helper()
	pods := &corev1.PodList{}
	must(b.t, b.Client.List(b.t.Context(), pods))
	var names []string
	for i := range pods.Items {
		names = append(names, pods.Items[i].Name)
	}
	return strings.Join(names, " ")
}

func TestAPoolKeepsOnePodForItsTime(t *testing.T) {
	b := newBench(t)
	b.change(func(p *v1alpha1.RunnerPool) { p.Spec.FailedPodTTL = &metav1.Duration{Duration: 10 * time.Minute} })
	b.start()
	b.keep(7, 5*time.Minute)
	last := b.keep(3, 9*time.Minute)
	b.snapshot.Assigned = 1
	b.reconcile()
	if got := b.kept(); got != last {
		t.Errorf("%s are kept, want %s", got, last)
	}
	if r := b.runners(); len(r) != 1 || r[0].Name != podspec.NameStem("linux", "p1")+"8" || b.pool().Status.Runners.Total != 0 {
		t.Errorf("a pod that is kept counts, or its name is given again: %+v", r)
	}
	b.now = b.now.Add(9 * time.Minute)
	b.reconcile()
	if got := b.kept(); got != "" {
		t.Errorf("%s is kept for longer", got)
	}
}

func TestAKeptPodGoesWithItsPoolAndFailedPodTTL(t *testing.T) {
	for name, change := range map[string]func(*bench){
		"the pool keeps none any more": func(b *bench) { b.change(func(p *v1alpha1.RunnerPool) { p.Spec.FailedPodTTL = nil }) },
		"the pool is gone":             func(b *bench) { must(b.t, b.Client.Delete(b.t.Context(), b.pool())) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.change(func(p *v1alpha1.RunnerPool) { p.Spec.FailedPodTTL = &metav1.Duration{Duration: 10 * time.Minute} })
			b.start()
			b.keep(1, 5*time.Minute)
			b.reconcile()
			if b.kept() == "" {
				t.Fatal("nothing is kept")
			}
			change(b)
			b.reconcile()
			if got := b.kept(); got != "" {
				t.Errorf("%s is kept", got)
			}
		})
	}
}

func TestOnlyAnotherValueOfTheAnnotationWakesThePool(t *testing.T) {
	pool := func(value, other string) client.Object {
		return &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1alpha1.RetryAnnotation: value, "other": other}}}
	}
	for _, tc := range []struct {
		before, after client.Object
		want          bool
	}{
		{pool("1", ""), pool("2", ""), true},
		{&v1alpha1.RunnerPool{}, pool("1", ""), true},
		{pool("1", ""), pool("1", "x"), false},
	} {
		if got := retryRequested().Update(event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}); got != tc.want {
			t.Errorf("from %v to %v: %t", tc.before.GetAnnotations(), tc.after.GetAnnotations(), got)
		}
	}
}

// If GitHub counts no runners, nothing else would end a series of runners that never connected, and the pool would get no
// idle runner before a job.
func TestAnIdleProbeIsWellWhereGitHubCountsNone(t *testing.T) {
	began := time.Unix(1_000_000, 0)
	circuit := scaling.Circuit{Cause: v1alpha1.CauseNeverConnected, Failures: scaling.Tolerated}
	probe := observed{runner: &v1alpha1.Runner{}, verdict: poolstatus.Assessment{State: v1alpha1.RunnerIdle, Since: began}}
	proof := v1alpha1.DefaultConnectDeadline + runners.ListedWithin
	for after, want := range map[time.Duration]bool{proof - 1: false, proof: true} {
		o := observation{pool: &v1alpha1.RunnerPool{}, now: began.Add(after)}
		if got := o.isWell(circuit, probe); got != want {
			t.Errorf("after %s: %t", after, got)
		}
		if o.memory.health.counts = true; o.isWell(circuit, probe) {
			t.Errorf("GitHub counts runners, and did not see it after %s", after)
		}
	}
}
