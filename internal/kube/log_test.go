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

// What a process can't say yet, as it has only begun, changes nothing of what is said, and is told to nobody.
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
			t.Errorf("%s: nothing was said yet, and now it is %+v", name, b.pool(t).Status.Conditions)
		}
		finish(before)
		said := b.pool(t).Status.Conditions
		<-b.events
		if again := finish(starting); again != time.Second || len(b.events) > 0 {
			t.Errorf("%s: it is looked at again after %s, and %d events tell of it", name, again, len(b.events))
		}
		if diff := cmp.Diff(said, b.pool(t).Status.Conditions); diff != "" {
			t.Errorf("%s: the conditions changed (-before +after):\n%s", name, diff)
		}
		changed := b.pool(t)
		changed.Generation++
		if err := b.client.Update(t.Context(), changed); err != nil {
			t.Fatal(err)
		}
		if finish(starting); !conditions.IsUnknown(b.pool(t), v1alpha1.ReadyCondition) {
			t.Errorf("%s: of another generation it says %+v", name, b.pool(t).Status.Conditions)
		}
	}
}

// What another object repeats is told of that alone, unless it is deleted, when the other is gone.
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
		if told := len(b.events) > 0; told != (pool == gone) {
			t.Errorf("deleted %v, told %v", pool == gone, told)
		}
	}
}

// One more runner that fails for the same cause is no news, nor what else GitHub answers in an outage.
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
			if told, said := len(b.events), conditions.GetMessage(b.pool(t), v1alpha1.ReadyCondition); told != 1+i/2 || said != text {
				t.Errorf("%q: %d events, the condition says %q", text, told, said)
			}
		}
	}
}

// What belongs to the course of things is told once, however its count goes down, and is no Warning.
func TestAWaitThatBelongsToTheCourseOfThingsIsToldOnce(t *testing.T) {
	b := newBench(t)
	for _, text := range []string{"2 runners finish their jobs", "1 runner finishes its job"} {
		if _, err := b.reporter.Begin(b.pool(t)).Finish(t.Context(), kube.Done{}, kube.Wait(time.Second, catalog.RunnersLeaving.With(text))); err != nil {
			t.Fatal(err)
		}
		if said := conditions.GetMessage(b.pool(t), v1alpha1.ReadyCondition); said != text {
			t.Errorf("it says %q", said)
		}
	}
	if told := <-b.events; told != "Normal Draining 2 runners finish their jobs" || len(b.events) > 0 {
		t.Errorf("told %q, and %d more", told, len(b.events))
	}
}

func TestTroubleIsLoggedAsAWarningAndAPassAtTheLevelOfDebug(t *testing.T) {
	core, lines := observer.New(zapcore.DebugLevel)
	ctx := log.IntoContext(t.Context(), zapr.NewLogger(zap.New(core)))
	b := newBench(t)
	for _, outcome := range []error{nil, nil, kube.Wait(1, catalog.PodQuota.With()), errors.New("lost"), kube.Progress(1, catalog.PodEnding.With())} {
		_, _ = b.reporter.Begin(b.pool(t)).Finish(ctx, kube.Done{Message: "listening"}, outcome)
	}
	kube.LogDeleted(ctx, b.client, b.pool(t), "main@sha1:1", "it left the source")
	var got []string
	for _, l := range lines.All() {
		got = append(got, l.Level.String()+" "+l.Message)
	}
	pass := "debug Pass"
	if want := []string{pass, "info Ready changed", pass, pass, "warn Ready changed", pass, "warn Ready changed", pass, "info Deleted"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	want := map[string]any{"deleted": "RunnerPool ci/linux", "revision": "main@sha1:1", "reason": "it left the source"}
	if diff := cmp.Diff(want, lines.FilterMessage("Deleted").All()[0].ContextMap()); diff != "" {
		t.Error(diff)
	}
}
