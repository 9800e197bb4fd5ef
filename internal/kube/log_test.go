// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/go-logr/zapr"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/kube"
)

// A controller that has just started and does not know an object's state yet leaves its conditions unchanged, and
// emits no events.
func TestWhatIsNotKnownYetLeavesTheConditionsAsTheyAre(t *testing.T) {
	starting := kube.Starting(time.Second, catalog.SessionOpening.With())
	for name, before := range map[string]error{"ready": nil, "stalled": kube.Stall(catalog.PolicyDenied.With()), "waiting": kube.Wait(1, catalog.PodQuota.With())} {
		b := newBench(t)
		finish := func(outcome error) time.Duration {
			result, err := b.reporter.Begin(b.pool(t)).Finish(t.Context(), kube.Done{Message: "listening"}, outcome)
			if err != nil {
				t.Fatal(err)
			}
			return result.RequeueAfter
		}
		if finish(starting); !conditions.IsUnknown(b.pool(t), v1alpha1.ReadyCondition) || len(b.events) > 0 {
			t.Errorf("%s: the conditions were changed to %+v", name, b.pool(t).Status.Conditions)
		}
		finish(before)
		snapshot := b.pool(t).Status.Conditions
		<-b.events
		if again := finish(starting); again != time.Second || len(b.events) > 0 {
			t.Errorf("%s: got a requeue after %s and %d events", name, again, len(b.events))
		}
		if diff := cmp.Diff(snapshot, b.pool(t).Status.Conditions); diff != "" {
			t.Errorf("%s: the conditions changed (-before +after):\n%s", name, diff)
		}
		changed := b.pool(t)
		changed.Generation++
		if err := b.client.Update(t.Context(), changed); err != nil {
			t.Fatal(err)
		}
		if finish(starting); !conditions.IsUnknown(b.pool(t), v1alpha1.ReadyCondition) {
			t.Errorf("%s: got %+v for another generation", name, b.pool(t).Status.Conditions)
		}
	}
}

// A failure that another object reports emits no event for this object. The exception is an object that is being
// deleted, because the other object may be gone.
func TestWhatAnotherObjectRepeatsIsToldOnce(t *testing.T) {
	b := newBench(t)
	b.reporter.Mirrored = true
	gone := b.pool(t)
	gone.Finalizers = []string{"corral.dev/test"}
	for _, pool := range []*v1alpha1.RunnerPool{b.pool(t), gone} {
		if pool == gone {
			pool.DeletionTimestamp = new(metav1.Now())
		}
		if _, err := b.reporter.Begin(pool).Finish(t.Context(), kube.Done{}, kube.Stall(catalog.RunnerGroupNotFound.With())); err != nil {
			t.Fatal(err)
		}
		if emitted := len(b.events) > 0; emitted != (pool == gone) {
			t.Errorf("deleted %v, event emitted %v", pool == gone, emitted)
		}
	}
}

// Another runner that fails with the same cause emits no event, and neither does a different error from GitHub
// during one outage.
func TestWhatFailsAgainForTheSameCauseIsToldOnce(t *testing.T) {
	for _, all := range [][]catalog.Cause{
		{catalog.CircuitOpen.With(3, "Crash").Detailed("ended"), catalog.CircuitOpen.With(4, "Crash").Detailed("exited"), catalog.CircuitOpen.With(5, "ImagePull")},
		{catalog.GitHubUnavailable.With().Detailed("GitHub answered 500"), catalog.CallsUnanswered.With(), catalog.CallsRateLimited.With()},
	} {
		b := newBench(t)
		for i, cause := range all {
			text := catalog.Message(&cause.Cause)
			if _, err := b.reporter.Begin(b.pool(t)).Finish(t.Context(), kube.Done{}, kube.Wait(time.Second, cause)); err != nil {
				t.Fatal(err)
			}
			if n, message := len(b.events), conditions.GetMessage(b.pool(t), v1alpha1.ReadyCondition); n != 1+i/2 || message != text {
				t.Errorf("%q: %d events, the condition is %q", text, n, message)
			}
		}
	}
}

// An expected wait emits one Normal event, even if the count in its message changes.
func TestAWaitThatBelongsToTheCourseOfThingsIsToldOnce(t *testing.T) {
	b := newBench(t)
	for _, text := range []string{"2 runners finish their jobs", "1 runner finishes its job"} {
		if _, err := b.reporter.Begin(b.pool(t)).Finish(t.Context(), kube.Done{}, kube.Wait(time.Second, catalog.RunnersLeaving.With(text))); err != nil {
			t.Fatal(err)
		}
		if message := conditions.GetMessage(b.pool(t), v1alpha1.ReadyCondition); message != text {
			t.Errorf("got the message %q", message)
		}
	}
	if event := <-b.events; event != "Normal Draining 2 runners finish their jobs" || len(b.events) > 0 {
		t.Errorf("got the event %q and %d more", event, len(b.events))
	}
}

func TestTroubleIsLoggedAsAWarningAndAPassAtTheLevelOfDebug(t *testing.T) {
	core, lines := observer.New(zapcore.DebugLevel)
	ctx := log.IntoContext(t.Context(), zapr.NewLogger(zap.New(core)))
	b := newBench(t)
	for _, outcome := range []error{nil, nil, kube.Wait(1, catalog.PodQuota.With()), errors.New("lost"), kube.Progress(1, catalog.PodEnding.With())} {
		_, _ = b.reporter.Begin(b.pool(t)).Finish(ctx, kube.Done{Message: "listening"}, outcome)
	}
	kube.LogDeleted(ctx, b.client, b.pool(t), "main@sha1:1", "removed from the source")
	var got []string
	for _, l := range lines.All() {
		got = append(got, l.Level.String()+" "+l.Message)
	}
	pass := "debug Reconciled"
	if want := []string{pass, "info Ready changed", pass, pass, "warn Ready changed", pass, "warn Ready changed", pass, "info Deleted"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	want := map[string]any{"deleted": "RunnerPool ci/linux", "revision": "main@sha1:1", "reason": "removed from the source"}
	if diff := cmp.Diff(want, lines.FilterMessage("Deleted").All()[0].ContextMap()); diff != "" {
		t.Error(diff)
	}
}
