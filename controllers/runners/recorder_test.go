// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/poolstatus"
)

func TestMergeIsWhateverTheOrderAndRepetition(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(1000+s), 0) }
	started := scaleset.JobEvent{Type: scaleset.JobStarted, JobID: "j1", Repository: "acme/app", Name: "build", RunID: 7, At: at(1)}
	completed := started
	completed.Type, completed.Result, completed.At = scaleset.JobCompleted, "failed", at(9)
	other := started
	other.JobID = "j2"
	unnamed := scaleset.JobEvent{Type: scaleset.JobStarted, JobID: v1alpha1.UnknownJob, At: at(1)}
	want := &v1alpha1.JobReference{
		ID: "j1", Repository: "acme/app", Name: "build", RunID: 7,
		StartedAt: &metav1.Time{Time: at(1)}, CompletedAt: &metav1.Time{Time: at(9)}, Result: "failed",
	}
	for name, events := range map[string][]scaleset.JobEvent{
		"in order":               {started, completed},
		"reversed":               {completed, started},
		"repeated":               {started, started, completed, completed, started},
		"with another's in it":   {started, other, completed},
		"repeated across a gap":  {completed, started, completed},
		"seen before it's named": {unnamed, completed, started},
		"named before it's seen": {started, unnamed, completed, unnamed},
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

// A restarted controller numbers its runners from the beginning and reads old messages again.
func TestWordsAboutAFormerRunnerOfTheNameAreNotTaken(t *testing.T) {
	b := newBench(t)
	b.reconcile()
	recorder := &Recorder{Client: b.Client, Namespace: "ci", Memory: b.Memory}
	id := b.runner().Status.RunnerID
	for _, kind := range []scaleset.EventType{scaleset.JobStarted, scaleset.JobCompleted} {
		event := scaleset.JobEvent{Type: kind, JobID: "former", RunnerName: "linux-a", RunnerID: id + 1, At: b.now}
		if err := recorder.RecordJobs(t.Context(), []scaleset.JobEvent{event}); err != nil {
			t.Fatal(err)
		}
	}
	if r := b.runner(); !r.DeletionTimestamp.IsZero() || b.pod().Annotations[v1alpha1.JobAnnotation] != "" {
		t.Errorf("taken for its own: %+v, %v", r.DeletionTimestamp, b.pod().Annotations)
	}
}

// The message about the job and the end of the pod arrive together, and the cache may show neither the first deletion nor
// its effects.
func TestARunnerIsDeletedOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		podFirst bool
		refused  int // number of refused deletions
	}{"the message comes first": {}, "the pod ends first": {podFirst: true}, "the first deletion is refused": {refused: 1}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.reconcile()
			b.setPod(ended(b.now))
			before, deletions := b.runner(), 0
			b.Client = interceptor.NewClient(b.Client.(client.WithWatch), interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
					if r, ok := o.(*v1alpha1.Runner); ok {
						before.DeepCopyInto(r)
						return nil
					}
					return c.Get(ctx, key, o, opts...)
				},
				Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
					if _, ok := o.(*v1alpha1.Runner); !ok {
						return c.Delete(ctx, o, opts...)
					}
					if deletions++; deletions <= tc.refused {
						return errors.New("not now")
					}
					return c.Delete(ctx, o, opts...)
				},
			})
			recorder := &Recorder{Client: b.Client, Namespace: "ci", Memory: b.Memory}
			job := func(kind scaleset.EventType) {
				event := scaleset.JobEvent{Type: kind, JobID: "j", RunnerName: "linux-a", Result: "succeeded", At: b.now}
				if err := recorder.RecordJobs(t.Context(), []scaleset.JobEvent{event}); (err != nil) != (kind == scaleset.JobCompleted && tc.refused > 0) {
					t.Fatal(err)
				}
			}
			job(scaleset.JobStarted)
			if tc.podFirst {
				b.reconcile()
				b.now = b.now.Add(2 * poolstatus.Settle)
				b.reconcile()
				if deletions != 1 {
					t.Errorf("deleted %d times after the pod's end", deletions)
				}
			}
			job(scaleset.JobCompleted)
			b.reconcile()
			b.reconcile()
			if deletions != tc.refused+1 {
				t.Errorf("deleted %d times, %d of them refused", deletions, tc.refused)
			}
		})
	}
}

func TestTwoWhoEndARunnerMakeOneRequestAndGetItsError(t *testing.T) {
	for name, refused := range map[string]bool{"done": false, "refused": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runner := &v1alpha1.Runner{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "linux-a", UID: "u1", Finalizers: []string{v1alpha1.RunnerFinalizer}}}
				deletions, answer, memory := 0, make(chan error), NewMemory()
				memory.of(client.ObjectKeyFromObject(runner), runner.UID)
				c := interceptor.NewClient(fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(runner).Build(), interceptor.Funcs{
					Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
						deletions++
						return <-answer
					},
				})
				errs := make(chan error, 3)
				end := func() { errs <- memory.end(t.Context(), c, runner, "it is over") }
				go end()
				go end()
				synctest.Wait()
				if refused {
					answer <- errors.New("not now")
				}
				close(answer)
				for range 2 {
					if err := <-errs; (err != nil) != refused {
						t.Errorf("the deletion was refused: %t, and the error is %v", refused, err)
					}
				}
				end()
				if err := <-errs; err != nil || refused && deletions != 2 || !refused && deletions != 1 {
					t.Errorf("%d deletions, the first refused: %t; %v", deletions, refused, err)
				}
			})
		})
	}
}

// refusals returns the ways in which the API server refuses a write: missing rights, a ValidatingAdmissionPolicy, and a
// webhook that does not choose a status code.
func refusals() map[string]error {
	return map[string]error{
		"forbidden": apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "x", errors.New("no")),
		"invalid":   apierrors.NewInvalid(schema.GroupKind{Kind: "Thing"}, "x", nil),
		"denied": &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusBadRequest, Message: `admission webhook "w" denied the request: no`,
		}},
	}
}

// For example, an admission policy forbids changes to running pods.
func TestAJobWhosePodMayNotBeMarkedIsOnItsRunner(t *testing.T) {
	for name, refused := range refusals() {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.reconcile()
			refusing := interceptor.NewClient(b.Client.(client.WithWatch), interceptor.Funcs{
				Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
					return refused
				},
			})
			recorder := &Recorder{Client: refusing, Namespace: "ci", Memory: b.Memory}
			started := scaleset.JobEvent{Type: scaleset.JobStarted, JobID: "j", RunnerName: "linux-a", At: b.now}
			if err := recorder.RecordJobs(t.Context(), []scaleset.JobEvent{started}); err != nil {
				t.Fatal(err)
			}
			b.reconcile()
			if s := b.runner().Status; s.State != v1alpha1.RunnerBusy || s.Job == nil || s.Job.ID != "j" {
				t.Errorf("status %+v", s)
			}
		})
	}
}

// A refused pod is not attributed to GitHub.
func TestAPodThatIsRefusedIsToldAsSuch(t *testing.T) {
	for name, refused := range refusals() {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.Client = interceptor.NewClient(b.Client.(client.WithWatch), interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
					if _, ok := o.(*corev1.Pod); ok {
						return refused
					}
					return c.Create(ctx, o, opts...)
				},
			})
			_, _ = b.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(b.runner())})
			if s := b.runner().Status; s.Cause != v1alpha1.CauseRefused {
				t.Errorf("status %+v", s)
			}
		})
	}
}

// A completion that arrives when the runner is gone leaves nothing behind.
func TestNothingIsKeptOfARunnerThatIsGone(t *testing.T) {
	b := newBench(t)
	key := client.ObjectKey{Namespace: "ci", Name: "gone"}
	b.Memory.recordCompletion(key, "u9", completion{at: b.now, forgotten: true})
	if _, err := b.Reconcile(t.Context(), ctrl.Request{NamespacedName: key}); err != nil {
		t.Fatal(err)
	}
	if n := len(b.Memory.runners); n != 0 {
		t.Errorf("%d notes", n)
	}
}

// Numbers start again with the controller, and the pod of a lost node may still exist.
func TestARunnerWhosePodsNameIsTakenMakesRoomForTheNext(t *testing.T) {
	b := newBench(t)
	former := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "linux-a", Annotations: map[string]string{v1alpha1.RunnerUIDAnnotation: "former"}}}
	if err := b.Client.Create(t.Context(), former); err != nil {
		t.Fatal(err)
	}
	b.reconcile()
	if r := b.runner(); r.DeletionTimestamp.IsZero() || r.Status.State != v1alpha1.RunnerFailed || r.Status.Cause != v1alpha1.CauseRemoved {
		t.Errorf("status %+v", r.Status)
	}
	b.reconcile()
	if b.runner() != nil || b.registered() != 0 || b.pod() == nil {
		t.Errorf("runner %v, %d registrations; the other's pod is there: %v", b.runner(), b.registered(), b.pod() != nil)
	}
}

// A job mark protects a runner from a pause, a scale-down and policies.
func TestAMarkThatIsNotItsRunnersMakesNoRunnerBusy(t *testing.T) {
	b := newBench(t)
	b.reconcile()
	b.setPod(running(b.now))
	pod := b.pod()
	pod.Annotations[v1alpha1.JobAnnotation] = `{"id":"mine","repository":"evil/app"}`
	b.update(pod)
	b.reconcile()
	if s := b.runner().Status; s.State != v1alpha1.RunnerIdle || s.Job != nil {
		t.Errorf("it is %s with job %+v", s.State, s.Job)
	}
}
