// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/explain"
)

// scribe is a bench that counts the requests for its pool's history.
type scribe struct {
	*bench
	reads, writes int
	refusal       error // of the API server, to a write
}

func newScribe(t *testing.T) *scribe {
	t.Helper()
	s := &scribe{bench: newBench(t)}
	s.Client = interceptor.NewClient(s.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, o ...client.GetOption) error {
			if isHistory(obj) {
				s.reads++
			}
			return c.Get(ctx, key, obj, o...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.CreateOption) error {
			if isHistory(obj) {
				s.writes++
				if s.refusal != nil {
					return s.refusal
				}
			}
			return c.Create(ctx, obj, o...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, p client.Patch, o ...client.PatchOption) error {
			if isHistory(obj) {
				s.writes++
				if s.refusal != nil {
					return s.refusal
				}
			}
			return c.Patch(ctx, obj, p, o...)
		},
	})
	return s
}

func isHistory(obj client.Object) bool {
	_, ok := obj.(*corev1.ConfigMap)
	return ok
}

// after advances the clock and changes the number of jobs.
func (s *scribe) after(d time.Duration, jobs int) {
	s.t.Helper()
	s.now, s.snapshot.Assigned = s.now.Add(d), jobs
	s.reconcile()
}

// costs checks the requests for the history since the previous call.
func (s *scribe) costs(reads, writes int) {
	s.t.Helper()
	if s.reads != reads || s.writes != writes {
		s.t.Errorf("%d reads and %d writes, want %d and %d", s.reads, s.writes, reads, writes)
	}
	s.reads, s.writes = 0, 0
}

func (s *scribe) config() *corev1.ConfigMap {
	s.t.Helper()
	c := &corev1.ConfigMap{}
	must(s.t, s.Client.Get(s.t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: "linux-decisions"}, c))
	s.reads = 0
	return c
}

// checkEntries compares the entries, one per line: desired before and after, and jobs.
func (s *scribe) checkEntries(want ...string) {
	s.t.Helper()
	entries, err := explain.ParseHistory(s.config().Data[explain.HistoryKey])
	must(s.t, err)
	var got []string
	for _, e := range entries {
		before := "new"
		if e.Decision.Before != nil {
			before = fmt.Sprint(e.Decision.Before.Desired)
		}
		got = append(got, fmt.Sprintf("%s → %d for %d", before, e.Decision.Desired, *e.Jobs))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Error(diff)
	}
}

// count returns the number of events with a reason since the previous call.
func (s *scribe) count(reason string) int {
	n, recorded := 0, s.Events.(*events.FakeRecorder).Events
	for len(recorded) > 0 {
		if strings.Contains(<-recorded, reason) {
			n++
		}
	}
	return n
}

func TestAHistoryIsWrittenOnceAMinuteAtMost(t *testing.T) {
	s := newScribe(t)
	s.start()
	s.costs(1, 1)
	s.checkEntries("new → 0 for 0")
	for i := range 100 { // 50 s of changes
		s.after(500*time.Millisecond, 1+i%4)
	}
	s.costs(0, 0)
	s.after(10*time.Second, 3)
	s.costs(0, 1)
	s.checkEntries("4 → 3 for 3", "new → 4 for 4")
	for range 30 {
		s.after(time.Minute, 3)
	}
	s.costs(0, 0)
	s.after(time.Second, 0)
	s.costs(0, 1)
	s.checkEntries("3 → 0 for 0", "4 → 3 for 3", "new → 4 for 4")
	c := s.config()
	if !metav1.IsControlledBy(c, s.pool()) || c.Labels[v1alpha1.PoolLabel] != "linux" {
		t.Errorf("owned by %v, labelled %v", c.OwnerReferences, c.Labels)
	}
}

func TestAnIdlePoolWritesNothing(t *testing.T) {
	s := newScribe(t)
	s.start()
	s.reads, s.writes = 0, 0
	for range 300 {
		s.after(time.Second, 0)
	}
	s.costs(0, 0)
	s.memory.drop(key) // the process starts again
	for _, state := range []bool{false, true} {
		s.snapshot.Known = state
		for range 100 {
			s.after(time.Second, 0)
		}
	}
	s.costs(0, 0)
}

func TestAHistoryGoesOnAfterARestart(t *testing.T) {
	s := newScribe(t)
	s.start()
	s.after(2*time.Minute, 2)
	s.memory.drop(key)
	s.reads, s.writes = 0, 0
	s.after(2*time.Minute, 4)
	s.costs(1, 1)
	s.checkEntries("2 → 4 for 4", "0 → 2 for 2", "new → 0 for 0")
	s.after(2*time.Minute, 1)
	s.costs(0, 1)
}

func TestALostHistoryBeginsAgain(t *testing.T) {
	s := newScribe(t)
	s.start()
	must(t, s.Client.Delete(t.Context(), s.config()))
	s.now, s.snapshot.Assigned = s.now.Add(2*time.Minute), 2
	var lines []string
	logger := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	_, err := s.Reconcile(log.IntoContext(t.Context(), logger), ctrl.Request{NamespacedName: key})
	must(t, err)
	if i := slices.IndexFunc(lines, func(l string) bool { return strings.Contains(l, "history") }); i >= 0 {
		t.Errorf("a deleted ConfigMap, which may precede the deletion of its pool, is logged: %s", lines[i])
	}
	if c := (&corev1.ConfigMap{}); !apierrors.IsNotFound(s.Client.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: "linux-decisions"}, c)) {
		t.Error("it is there at once although its version is not the one that was written")
	}
	s.after(time.Minute, 2)
	s.checkEntries("0 → 2 for 2", "new → 0 for 0")
	if n := len(s.runners()); n != 2 {
		t.Errorf("%d runners", n)
	}
}

func TestAHistoryThatSomebodyChangedIsLookedAtFirst(t *testing.T) {
	s := newScribe(t)
	s.start()
	c := s.config()
	c.Labels["team"] = "a"
	must(t, s.Client.Update(t.Context(), c))
	s.reads, s.writes = 0, 0
	s.after(2*time.Minute, 2)
	s.costs(0, 1)
	s.checkEntries("new → 0 for 0")
	s.after(time.Minute, 2)
	s.costs(1, 1)
	s.checkEntries("0 → 2 for 2", "new → 0 for 0")
	if s.config().Labels["team"] != "a" {
		t.Error("what somebody else added is gone")
	}
}

func TestAConfigMapOfSomebodyElseIsLeftAlone(t *testing.T) {
	s := newScribe(t)
	must(t, s.Client.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "linux-decisions"}, Data: map[string]string{explain.HistoryKey: "mine"},
	}))
	s.writes = 0
	s.start()
	for i := range 10 {
		s.after(time.Minute, i%3)
	}
	if s.writes != 0 || s.reads > 11 || s.config().Data[explain.HistoryKey] != "mine" {
		t.Errorf("%d writes, %d reads, %v", s.writes, s.reads, s.config().Data)
	}
	if n := s.count(historyNotKept); n != 1 {
		t.Errorf("told %d times", n)
	}
	must(t, s.Client.Delete(t.Context(), s.config()))
	s.after(time.Minute, 1)
	if !metav1.IsControlledBy(s.config(), s.pool()) {
		t.Error("no history although nothing is in its way any more")
	}
}

func TestAHistoryOfAFormerPoolIsWaitedFor(t *testing.T) {
	s := newScribe(t)
	former := s.pool()
	former.UID = "p0"
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "linux-decisions"}}
	c.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(former, v1alpha1.GroupVersion.WithKind("RunnerPool"))}
	must(t, s.Client.Create(t.Context(), c))
	s.writes = 0
	s.start()
	s.after(time.Minute, 2)
	if s.writes != 0 || s.count(historyNotKept) != 0 {
		t.Errorf("%d writes", s.writes)
	}
}

func TestNothingDependsOnTheHistory(t *testing.T) {
	s := newScribe(t)
	s.refusal = errors.New("etcd is full")
	s.start()
	s.after(time.Minute, 2)
	s.after(time.Second, 2)
	s.costs(2, 2)
	if n := len(s.runners()); n != 2 || s.pool().Status.Decision.Desired != 2 {
		t.Errorf("%d runners, %+v", n, s.pool().Status.Decision)
	}
	s.refusal = nil
	s.after(time.Minute, 2)
	s.checkEntries("0 → 2 for 2", "new → 0 for 0")
}

func TestVerdictsOnTheTemplateAreHistory(t *testing.T) {
	s := newScribe(t)
	s.start()
	p := s.pool()
	after := p.Status
	after.Policy = &v1alpha1.TemplateVerdict{Revision: "linux-2", Denials: []v1alpha1.PolicyFinding{{Message: "privileged"}}}
	s.now = s.now.Add(2 * time.Minute)
	s.recordHistory(t.Context(), p, s.memory.of(key).history, after, nil)
	s.recordHistory(t.Context(), p, s.memory.of(key).history, after, nil)
	entries, err := explain.ParseHistory(s.config().Data[explain.HistoryKey])
	must(t, err)
	if len(entries) != 2 || entries[0].Template == nil || entries[0].Template.Denials[0].Message != "privileged" || entries[0].Decision.Desired != 0 || entries[1].Template != nil {
		t.Errorf("%+v", entries)
	}
}
