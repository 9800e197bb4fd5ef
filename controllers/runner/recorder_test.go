// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/corral-dev/corral/apis/v1alpha1"
	actions "github.com/corral-dev/corral/internal/scaleset"
)

func TestMergeIsWhateverTheOrderAndRepetition(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(1000+s), 0) }
	started := actions.JobEvent{Type: actions.JobStarted, JobID: "j1", Repository: "acme/app", Name: "build", RunID: 7, At: at(1)}
	completed := started
	completed.Type, completed.Result, completed.At = actions.JobCompleted, "failed", at(9)
	other := started
	other.JobID = "j2"
	want := &v1alpha1.JobReference{
		ID: "j1", Repository: "acme/app", Name: "build", RunID: 7,
		StartedAt: &metav1.Time{Time: at(1)}, CompletedAt: &metav1.Time{Time: at(9)}, Result: "failed",
	}
	for name, events := range map[string][]actions.JobEvent{
		"in order":              {started, completed},
		"reversed":              {completed, started},
		"repeated":              {started, started, completed, completed, started},
		"with another's in it":  {started, other, completed},
		"repeated across a gap": {completed, started, completed},
	} {
		t.Run(name, func(t *testing.T) {
			var got *v1alpha1.JobReference
			for _, e := range events {
				got = Merge(got, e)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("job (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLabelValuesAreValid(t *testing.T) {
	for _, in := range []string{"acme/app", "-x-", strings.Repeat("long/", 30), "ümlaut/repo", "", "a b", "8f2c1b9e-0000-4000-8000-000000000000"} {
		if bad := validation.IsValidLabelValue(labelValue(in)); len(bad) > 0 {
			t.Errorf("%q becomes %q: %v", in, labelValue(in), bad)
		}
	}
	if got := labelValue("acme/app"); got != "acme_app" {
		t.Errorf("acme/app becomes %q", got)
	}
}

// A restarted controller numbers its runners anew, and reads old messages again.
func TestWordsAboutAFormerRunnerOfTheNameAreNotTaken(t *testing.T) {
	b := newBench(t)
	b.reconcile()
	recorder := &Recorder{Client: b.Client, Namespace: "ci", Notes: b.Notes}
	id := b.runner().Status.RunnerID
	for _, kind := range []actions.EventType{actions.JobStarted, actions.JobCompleted} {
		event := actions.JobEvent{Type: kind, JobID: "former", RunnerName: "linux-a", RunnerID: id + 1, At: b.now}
		if err := recorder.RecordJobs(t.Context(), []actions.JobEvent{event}); err != nil {
			t.Fatal(err)
		}
	}
	if r := b.runner(); !r.DeletionTimestamp.IsZero() || b.pod().Annotations[v1alpha1.JobAnnotation] != "" {
		t.Errorf("taken for its own: %+v, %v", r.DeletionTimestamp, b.pod().Annotations)
	}
}
