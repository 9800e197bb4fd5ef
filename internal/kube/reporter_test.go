// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/test/reword"
)

// bench is a reporter with a fake cluster that has one pool. It records the reporter's writes and events.
type bench struct {
	reporter *kube.Reporter
	client   client.Client
	writes   int
	last     []byte // patch of the last write
	events   chan string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	b := &bench{}
	pool := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "linux", Generation: 3}}
	b.client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(pool).WithStatusSubresource(pool).WithInterceptorFuncs(interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, o ...client.SubResourcePatchOption) error {
			b.writes++
			b.last, _ = patch.Data(obj)
			return c.SubResource(sub).Patch(ctx, obj, patch, o...)
		},
	}).Build()
	recorder := events.NewFakeRecorder(10)
	b.events = recorder.Events
	b.reporter = &kube.Reporter{Client: b.client, Events: recorder}
	return b
}

func (b *bench) pool(t *testing.T) *v1alpha1.RunnerPool {
	t.Helper()
	p := &v1alpha1.RunnerPool{}
	if err := b.client.Get(t.Context(), client.ObjectKey{Namespace: "ci", Name: "linux"}, p); err != nil {
		t.Fatal(err)
	}
	return p
}

// The cache may return an object from before the last status write. The next status must be compared with the
// written one.
func TestAStatusIsComparedWithTheLastWrittenAndNotWithAnOlderCopy(t *testing.T) {
	b := newBench(t)
	b.reporter.Written = kube.NewWritten()
	finish := func(pool *v1alpha1.RunnerPool, outcome error) {
		t.Helper()
		if _, err := b.reporter.Begin(pool).Finish(t.Context(), kube.Done{Message: "listening"}, outcome); err != nil {
			t.Fatal(err)
		}
	}
	finish(b.pool(t), nil)
	older := b.pool(t)
	finish(older.DeepCopy(), kube.Progress(time.Second, catalog.SessionOpening.With()))
	finish(older.DeepCopy(), nil)
	if now := b.pool(t); !conditions.IsReady(now) {
		t.Errorf("the session is open, but the conditions are %+v", now.Status.Conditions)
	}
	changed := b.pool(t)
	changed.Labels = map[string]string{"a": "b"}
	if err := b.client.Update(t.Context(), changed); err != nil {
		t.Fatal(err)
	}
	shown := b.pool(t)
	finish(shown, nil)
	if shown.Labels["a"] != "b" {
		t.Error("the last write replaced a newer status")
	}
}

func TestFinishTurnsOutcomesIntoConditions(t *testing.T) {
	failure := errors.New("no route")
	cases := map[string]struct {
		done    kube.Done
		outcome error
		// want lists the conditions as TYPE=STATUS/REASON.
		want   []string
		result ctrl.Result
		err    error
	}{
		"well": {
			done: kube.Done{Message: "listening", After: time.Minute},
			want: []string{"Ready=True/Succeeded"}, result: ctrl.Result{RequeueAfter: time.Minute},
		},
		"under way": {
			outcome: kube.Progress(time.Second, catalog.PodEnding.With()),
			want:    []string{"Reconciling=True/Progressing", "Ready=Unknown/Progressing"},
			result:  ctrl.Result{RequeueAfter: time.Second},
		},
		"suspended": {
			done: kube.Done{Unready: []catalog.Cause{catalog.PoolDrained.With()}},
			want: []string{"Ready=False/Suspended"},
		},
		"stalled": {
			done: kube.Done{After: time.Hour}, outcome: kube.Stall(catalog.RunnerGroupNotFound.With().Wrap(failure)),
			want:   []string{"Stalled=True/RunnerGroupNotFound", "Ready=False/RunnerGroupNotFound"},
			result: ctrl.Result{RequeueAfter: time.Hour},
		},
		"waiting": {
			outcome: kube.Wait(time.Second, catalog.RunnersLeaving.With("one left")),
			want:    []string{"Reconciling=True/Progressing", "Ready=False/Draining"},
			result:  ctrl.Result{RequeueAfter: time.Second},
		},
		"failed": {
			outcome: failure, err: failure,
			want: []string{"Reconciling=True/ProgressingWithRetry", "Ready=False/ProgressingWithRetry"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			result, err := b.reporter.Begin(b.pool(t)).Finish(t.Context(), tc.done, tc.outcome)
			if result != tc.result || !errors.Is(err, tc.err) {
				t.Errorf("got %+v, %v", result, err)
			}
			p := b.pool(t)
			var got []string
			for _, c := range p.GetConditions() {
				got = append(got, c.Type+"="+string(c.Status)+"/"+c.Reason)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("conditions (-want +got):\n%s", diff)
			}
			if p.Status.ObservedGeneration != 3 {
				t.Errorf("observed generation %d", p.Status.ObservedGeneration)
			}
		})
	}
}

func TestAnUnreadableObjectStallsAndKeepsItsStatus(t *testing.T) {
	b := newBench(t)
	p := b.pool(t)
	if err := kube.Unreadable(p); err != nil {
		t.Fatal(err)
	}
	p.Fields = []string{"spec.scale.idleTimeout: time: invalid duration \"banana\""}
	p.Status.Jobs, p.Status.Conditions = new(int32(5)), []metav1.Condition{{Type: v1alpha1.ReadyCondition, Status: metav1.ConditionTrue}}
	if _, err := b.reporter.Begin(p).Finish(t.Context(), kube.Done{}, kube.Unreadable(p)); err != nil {
		t.Fatal(err)
	}
	if text := string(b.last); !strings.Contains(text, "spec.scale.idleTimeout") || strings.Contains(text, "jobs") {
		t.Errorf("wrote %s", text)
	}
}

func TestALostStatusIsReplaced(t *testing.T) {
	b := newBench(t)
	p := b.pool(t)
	p.Unread.Status = []string{"status.schedule.next: no time"}
	if _, err := b.reporter.Begin(p).Finish(t.Context(), kube.Done{Message: "listening"}, nil); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(b.last), `[{"op":"add","path":"/status","value":{"conditions":`) {
		t.Errorf("wrote %s, which leaves the unreadable field in place", b.last)
	}
}

func TestWhatDoesNotChangeIsNeitherWrittenNorTold(t *testing.T) {
	b := newBench(t)
	for range 3 {
		if _, err := b.reporter.Begin(b.pool(t)).Finish(t.Context(), kube.Done{Message: "listening"}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if b.writes != 1 || len(b.events) != 1 {
		t.Errorf("%d writes and %d events for one change", b.writes, len(b.events))
	}
}

// A retry of the same failure keeps its start time, and emits no further event.
func TestAnotherTryIsNeitherNewsNorABeginning(t *testing.T) {
	b := newBench(t)
	begun := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	for i, outcome := range []error{
		kube.Wait(time.Minute, catalog.CallsFailing.With(500).Retry(begun.Time)),
		kube.Wait(time.Minute, catalog.CallsFailing.With(503).Retry(begun.Add(time.Hour))),
		kube.Wait(time.Minute, catalog.CallsFailing.With(502).Retry(begun.Time)),
		kube.Wait(time.Minute, catalog.CallsUnanswered.With()),
		kube.Stall(catalog.CredentialsRefused.With().Detailed("GitHub answered 401")),
	} {
		pool := b.pool(t)
		for i := range pool.Status.Conditions {
			pool.Status.Conditions[i].LastTransitionTime = begun
		}
		if _, err := b.reporter.Begin(pool).Finish(t.Context(), kube.Done{}, outcome); err != nil {
			t.Fatal(err)
		}
		ready := conditions.Get(b.pool(t), v1alpha1.ReadyCondition)
		if isOf := ready.LastTransitionTime.Equal(&begun); isOf != (i == 1 || i == 2 || i == 3) {
			t.Errorf("%d: %q since %s", i, ready.Message, ready.LastTransitionTime)
		}
		if ready.Message != outcome.Error() {
			t.Errorf("%d: %q was not written", i, outcome)
		}
	}
	if len(b.events) != 2 {
		t.Errorf("%d events", len(b.events))
	}
}

func TestAnotherLimitOfAPolicyThatCostsTooMuchIsNoNews(t *testing.T) {
	b := newBench(t)
	for _, way := range []catalog.Cause{
		catalog.PolicyTooCostly.With("RunnerPolicy/a/b", "TimedOut").Detailed("it took more than 250ms of CPU time"),
		catalog.PolicyTooCostly.With("RunnerPolicy/a/b", "EvaluationError").Detailed("it could not be evaluated: there was no answer within 5s"),
		catalog.PolicyTooCostly.With("RunnerPolicy/a/b", "TimedOut").Detailed("it took more than 96 MiB of memory"),
		catalog.PolicyUnavailable.With("RunnerPolicy/a/b", "Quarantined").Detailed("it took too much time or memory 3 times"),
	} {
		if _, err := b.reporter.Begin(b.pool(t)).Finish(t.Context(), kube.Done{}, kube.Wait(time.Minute, way)); err != nil {
			t.Fatal(err)
		}
	}
	if len(b.events) != 2 {
		t.Errorf("%d events", len(b.events))
	}
}

// If the other object that was expected to report a failure does not, this object emits the event, once.
func TestWhatNobodyElseTellsIsToldLate(t *testing.T) {
	b := newBench(t)
	for i, done := range []kube.Done{{Elsewhere: true}, {Elsewhere: true}, {News: true}, {}} {
		if _, err := b.reporter.Begin(b.pool(t)).Finish(t.Context(), done, kube.Wait(time.Minute, catalog.CallsFailing.With(500))); err != nil {
			t.Fatal(err)
		}
		if got := len(b.events); (got > 0) != (i > 1) || got > 1 {
			t.Errorf("%d: %d events", i, got)
		}
	}
}

func TestTheFirstStatusIsWholeAndLaterOnesAreWhatChanged(t *testing.T) {
	b := newBench(t)
	for i, want := range []bool{true, false} {
		if _, err := b.reporter.Begin(b.pool(t)).Finish(t.Context(), kube.Done{Message: fmt.Sprint("look ", i)}, nil); err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b.last, []byte(`"total":0`)) != want {
			t.Errorf("write %d is %s", i, b.last)
		}
	}
}

func TestAnAbnormalConditionGoesWithItsCause(t *testing.T) {
	b := newBench(t)
	for _, outcome := range []error{kube.Stall(catalog.CANotNamed.With()), nil} {
		if _, err := b.reporter.Begin(b.pool(t)).Finish(t.Context(), kube.Done{}, outcome); err != nil {
			t.Fatal(err)
		}
	}
	if p := b.pool(t); conditions.IsStalled(p) || !conditions.IsReady(p) {
		t.Errorf("conditions are %+v", p.GetConditions())
	}
}

func TestChangesWithoutNewsAreGathered(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	finish := func(t *testing.T, b *bench, jobs int32, urgent bool, outcome error) ctrl.Result {
		t.Helper()
		p := b.pool(t)
		attempt := b.reporter.Begin(p)
		p.Status.Jobs = new(jobs)
		result, err := attempt.Finish(t.Context(), kube.Done{Message: "fine", After: time.Minute, Urgent: urgent}, outcome)
		if err != nil {
			t.Fatal(err)
		}
		return result
	}
	b := newBench(t)
	b.reporter.Gathered = kube.Gather(time.Second, 100, func() time.Time { return now })
	steps := []struct {
		name    string
		after   time.Duration
		jobs    int32
		urgent  bool
		outcome error
		writes  int
		again   time.Duration
	}{
		{name: "a new condition is news", jobs: 1, writes: 1, again: time.Minute},
		{name: "a count waits", jobs: 2, writes: 1, again: time.Second},
		{name: "with those that follow", after: 400 * time.Millisecond, jobs: 3, writes: 1, again: 600 * time.Millisecond},
		{name: "for a bounded time", after: 600 * time.Millisecond, jobs: 4, writes: 2, again: time.Minute},
		{name: "no change, no write", after: time.Hour, jobs: 4, writes: 2, again: time.Minute},
		{name: "the next waits again", jobs: 5, writes: 2, again: time.Second},
		{name: "what is urgent does not", jobs: 6, urgent: true, writes: 3, again: time.Minute},
		{name: "nor does trouble", jobs: 7, outcome: kube.Wait(time.Minute, catalog.PodQuota.With()), writes: 4, again: time.Minute},
	}
	for _, step := range steps {
		now = now.Add(step.after)
		result := finish(t, b, step.jobs, step.urgent, step.outcome)
		if b.writes != step.writes || result.RequeueAfter != step.again {
			t.Errorf("%s: %d writes, want %d; next look in %s, want %s", step.name, b.writes, step.writes, result.RequeueAfter, step.again)
		}
	}
}

func TestManyChangesWaitTheirTurnForABoundedTime(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	gathered := kube.Gather(time.Second, 1, func() time.Time { return now })
	benches := []*bench{newBench(t), newBench(t), newBench(t)}
	change := func(jobs int32) (writes int) {
		for i, b := range benches {
			b.reporter.Gathered = gathered
			p := b.pool(t)
			p.UID = types.UID(fmt.Sprint(i))
			attempt := b.reporter.Begin(p)
			p.Status.Jobs = new(jobs)
			if _, err := attempt.Finish(t.Context(), kube.Done{}, nil); err != nil {
				t.Fatal(err)
			}
			writes += b.writes
		}
		return writes
	}
	var got []int
	for jobs := range int32(7) {
		got = append(got, change(jobs+1))
		now = now.Add(time.Second)
	}
	// One write per second, including the first statuses, which are news. After five seconds, all waiting changes are
	// written.
	if diff := cmp.Diff([]int{1, 2, 3, 4, 5, 7, 8}, got); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

// Even if many statuses in one namespace change, a change in another namespace is written at once. The total rate
// of writes stays close to the limit.
func TestManyChangesOfANamespacePutOffNoOthers(t *testing.T) {
	const perSecond, greedy = 8, 40
	now := time.Unix(1_000_000, 0)
	b := newBench(t)
	b.reporter.Events = events.NewFakeRecorder(1000)
	b.reporter.Gathered = kube.Gather(time.Second, perSecond, func() time.Time { return now })
	var pools []*v1alpha1.RunnerPool
	for i := range greedy {
		pools = append(pools, &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "greedy", Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint(i))}})
	}
	pools = append(pools, &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "linux", UID: "team"}})
	for _, p := range pools {
		if err := b.client.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	var got [][2]int // writes per namespace in each of the first seconds
	for range 4 {
		writes := [2]int{}
		for i, p := range pools {
			before := b.writes
			attempt := b.reporter.Begin(p)
			p.Status.Conditions = nil
			if _, err := attempt.Finish(t.Context(), kube.Done{Message: now.String()}, kube.Wait(time.Second, catalog.Text(fmt.Sprint("Reason", now.Unix()), "no room"))); err != nil {
				t.Fatal(err)
			}
			writes[i/greedy] += b.writes - before
		}
		got = append(got, writes)
		now = now.Add(time.Second)
	}
	if diff := cmp.Diff([][2]int{{8, 1}, {8, 1}, {8, 1}, {8, 1}}, got); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

// Readers compare the times of conditions with timestamps of the API server, so conditions use the reporter's
// clock rather than the machine's.
func TestConditionsChangeByTheReportersClock(t *testing.T) {
	b, now := newBench(t), time.Unix(1_000_000, 0)
	b.reporter.Now = func() time.Time { return now }
	for i, step := range []struct {
		outcome error
		since   time.Time
	}{
		{nil, now}, {nil, now}, {kube.Stall(catalog.CANotNamed.With()), now.Add(2 * time.Hour)}, {kube.Stall(catalog.CredentialsNotNamed.With()), now.Add(2 * time.Hour)},
	} {
		pool := b.pool(t)
		if _, err := b.reporter.Begin(pool).Finish(t.Context(), kube.Done{Message: "listening"}, step.outcome); err != nil {
			t.Fatal(err)
		}
		if ready := conditions.Get(b.pool(t), v1alpha1.ReadyCondition); !ready.LastTransitionTime.Time.Equal(step.since) {
			t.Errorf("%d: %s since %s, want %s", i, ready.Status, ready.LastTransitionTime, step.since)
		}
		now = now.Add(time.Hour)
	}
}

// Causes are for programs. They contain the parameters of the message and the time since when they hold.
func TestCausesAreWritten(t *testing.T) {
	b, now := newBench(t), time.Unix(1_000_000, 0)
	b.reporter.Now = func() time.Time { return now }
	finish := func(outcome error) *v1alpha1.RunnerPool {
		t.Helper()
		pool := b.pool(t)
		attempt := b.reporter.Begin(pool)
		kube.Mark(pool, v1alpha1.HealthyCondition, catalog.CircuitOpen.With(3, "Crash").Detailed("exit code 1"))
		if _, err := attempt.Finish(t.Context(), kube.Done{}, outcome); err != nil {
			t.Fatal(err)
		}
		return b.pool(t)
	}
	finish(kube.Wait(time.Minute, catalog.CallsFailing.With(500)))
	now = now.Add(time.Hour)
	next := now.Add(time.Minute)
	pool := finish(kube.Wait(time.Minute, catalog.CallsFailing.With(502).About("GitHubConnection", "ci", "main").Retry(next), catalog.FormerCredentials.With()))
	got := pool.Status.Causes
	if len(got) != 3 || got[0].Code != "CallsFailing" || got[0].Parameter("code") != "502" || got[0].Condition != v1alpha1.ReadyCondition || !got[0].NextAttempt.Time.Equal(next) ||
		got[0].Subject.Name != "main" || got[1].Code != "FormerCredentials" || got[2].Code != "CircuitOpen" || got[2].Condition != v1alpha1.HealthyCondition {
		t.Fatalf("got %+v", got)
	}
	if !got[2].Since.Time.Equal(now.Add(-time.Hour)) || !got[0].Since.Time.Equal(now) {
		t.Errorf("since %s and %s", got[0].Since, got[2].Since)
	}
	if want := "GitHub responded with 502 to requests made for pools; next try by 14:47:40Z; pools continue with the previous credentials: a restart of the controller would stop them"; conditions.GetMessage(pool, v1alpha1.ReadyCondition) != want {
		t.Errorf("the message is %q", conditions.GetMessage(pool, v1alpha1.ReadyCondition))
	}
	pool = finish(nil)
	if len(pool.Status.Causes) != 1 || pool.Status.Causes[0].Condition != v1alpha1.HealthyCondition {
		t.Errorf("the pool is ready, but its causes are %+v", pool.Status.Causes)
	}
}

// The size of a status is bounded, whatever the size of a cause's parts.
func TestCausesAreCut(t *testing.T) {
	b := newBench(t)
	long := strings.Repeat("x", 5000)
	var causes []catalog.Cause
	for range 2 * v1alpha1.MaxCauses {
		causes = append(causes, catalog.PolicyUnavailable.With(long, "TimedOut").Detailed(long))
	}
	if _, err := b.reporter.Begin(b.pool(t)).Finish(t.Context(), kube.Done{}, kube.Wait(time.Minute, causes...)); err != nil {
		t.Fatal(err)
	}
	got := b.pool(t).Status.Causes
	if len(got) != v1alpha1.MaxCauses || len(got[0].Detail) != v1alpha1.MaxCauseText || len(got[0].Parameters[0].Value) != v1alpha1.MaxCauseText {
		t.Errorf("%d causes of %d and %d bytes", len(got), len(got[0].Detail), len(got[0].Parameters[0].Value))
	}
}

// A status from an older release has no causes. After an upgrade, the same failure does not emit another event.
func TestAStatusWithoutCausesIsKnown(t *testing.T) {
	b := newBench(t)
	pool := b.pool(t)
	conditions.MarkFalse(pool, v1alpha1.ReadyCondition, v1alpha1.GitHubUnavailableReason, "GitHub doesn't answer; next try 10:00:00Z")
	if _, err := b.reporter.Begin(pool).Finish(t.Context(), kube.Done{}, kube.Wait(time.Minute, catalog.CallsUnanswered.With())); err != nil {
		t.Fatal(err)
	}
	if len(b.events) != 0 || len(b.pool(t).Status.Causes) != 1 {
		t.Errorf("%d events, causes %+v", len(b.events), b.pool(t).Status.Causes)
	}
}

// If another program changes the wording of its error for the same spec, no event is emitted. After a change of
// the spec, an event is emitted.
func TestAnotherDetailIsNewsOfAnotherSpec(t *testing.T) {
	b := newBench(t)
	for i, step := range []struct {
		detail     string
		generation int64
		events     int
	}{{"a is wrong", 3, 1}, {"request 7: a is wrong", 3, 1}, {"request 7: a is wrong", 4, 1}, {"b is wrong", 5, 2}} {
		pool := b.pool(t)
		pool.Generation = step.generation
		if err := b.client.Update(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		if _, err := b.reporter.Begin(b.pool(t)).Finish(t.Context(), kube.Done{}, kube.Stall(catalog.PodRefused.With().Detailed(step.detail))); err != nil {
			t.Fatal(err)
		}
		if len(b.events) != step.events {
			t.Errorf("%d: %d events", i, len(b.events))
		}
	}
}

// After an upgrade to a release with a different wording for the same cause, no event is emitted. The Ready
// condition gets the new wording.
func TestAnotherWordingIsNoNews(t *testing.T) {
	outcomes := func() map[string]error {
		all := map[string]error{}
		for _, row := range catalog.Rows() {
			values := make([]any, len(row.Parameters()))
			if row.Reason != "" {
				all[row.Code] = kube.Wait(time.Minute, row.With(values...).Detailed("detail"))
			}
		}
		return all
	}
	benches := map[string]*bench{}
	finish := func(code string, outcome error) {
		if _, err := benches[code].reporter.Begin(benches[code].pool(t)).Finish(t.Context(), kube.Done{}, outcome); err != nil {
			t.Fatal(err)
		}
	}
	for code, outcome := range outcomes() {
		benches[code] = newBench(t)
		finish(code, outcome)
	}
	reword.All(t)
	for code, outcome := range outcomes() {
		finish(code, outcome)
		if got := conditions.GetMessage(benches[code].pool(t), v1alpha1.ReadyCondition); len(benches[code].events) != 1 || got != outcome.Error() {
			t.Errorf("%s: %d events, got the message %q", code, len(benches[code].events), got)
		}
	}
}
