// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/poolstatus"
)

// evict makes the node end the pod, as a kubelet under pressure does.
func (b *bench) evict(code int32) {
	b.t.Helper()
	const text = "The node was low on resource: memory."
	b.setPod(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: code, FinishedAt: metav1.Time{Time: b.now}}})
	pod := b.pod()
	pod.Status.Phase, pod.Status.Reason, pod.Status.Message = corev1.PodFailed, "Evicted", text
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonTerminationByKubelet, Message: text}}
	if err := b.Client.Status().Update(b.t.Context(), pod); err != nil {
		b.t.Fatal(err)
	}
}

// The pod's own reason and message reach the status, the event and the pool.
func TestAnEvictionIsTold(t *testing.T) {
	b := newBench(t)
	b.reconcile()
	b.evict(137)
	b.reconcile()
	const want = "Evicted: The node was low on resource: memory."
	s := b.runner().Status
	if s.State != v1alpha1.RunnerFailed || s.Cause != v1alpha1.CauseNode || s.Reason != want || s.Exit == nil || s.Exit.Actor != v1alpha1.ActorNode || s.Exit.Reason != "Evicted" || s.Exit.Code != 137 {
		t.Errorf("%+v, exit %+v", s, s.Exit)
	}
	if got := b.allEvents(); !strings.Contains(got, "Node: "+want+"; exit code 137") {
		t.Errorf("events %s", got)
	}
	if f := b.failures(); len(f) != 1 || f[0].Cause != v1alpha1.CauseNode || f[0].Message != want || f[0].Exit.Actor != v1alpha1.ActorNode {
		t.Errorf("failures %+v", f)
	}
}

// The pod may be gone before the cache shows the status that records its end.
func TestAnEndIsKnownThoughThePodIsGone(t *testing.T) {
	b := newBench(t)
	b.reconcile()
	b.setPod(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: b.now}}})
	b.reconcile()
	before := b.runner().Status
	b.evict(0) // GitHub may still report that it had a job
	b.reconcile()
	stale := b.runner()
	stale.Status = before
	if err := b.Client.Status().Update(t.Context(), stale); err != nil {
		t.Fatal(err)
	}
	b.Memory.recordGone(b.pod())
	if err := b.Client.Delete(t.Context(), b.pod()); err != nil {
		t.Fatal(err)
	}
	b.now = b.now.Add(poolstatus.Settle)
	b.reconcile()
	if f := b.failures(); len(f) != 1 || f[0].Cause != v1alpha1.CauseNode || f[0].Exit == nil || f[0].Exit.Actor != v1alpha1.ActorNode {
		t.Errorf("failures %+v", f)
	}
}

// A pod may be evicted and gone before a pass sees it.
func TestAPodThatVanishesIsKnownByItsLastState(t *testing.T) {
	b := newBench(t)
	b.reconcile()
	b.setPod(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: b.now}}})
	last := b.pod()
	last.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler}}
	if err := b.Client.Delete(t.Context(), b.pod()); err != nil {
		t.Fatal(err)
	}
	b.Memory.recordGone(last)
	b.reconcile()
	if f := b.failures(); len(f) != 1 || f[0].Cause != v1alpha1.CauseRemoved || f[0].Exit == nil || f[0].Exit.Actor != v1alpha1.ActorScheduler {
		t.Errorf("failures %+v", f)
	}
}

// A pod that was deleted before it ran is not created again for the same runner, because it would be deleted again,
// endlessly.
func TestAPodThatWasDeletedBeforeItRanIsNotMadeAgain(t *testing.T) {
	b := newBench(t)
	b.reconcile()
	b.reconcile() // the cache shows its pod
	if err := b.Client.Delete(t.Context(), b.pod()); err != nil {
		t.Fatal(err)
	}
	b.now = b.now.Add(time.Second)
	b.reconcile()
	s := b.runner().Status
	if b.pod() != nil || s.State != v1alpha1.RunnerFailed || s.Cause != v1alpha1.CauseRemoved || s.Exit == nil || s.Exit.Actor != v1alpha1.ActorUnknown || s.Exit.Reason != poolstatus.ReasonDeleted {
		t.Errorf("pod %v, %+v, exit %+v", b.pod() != nil, s, s.Exit)
	}
	if f := b.failures(); len(f) != 1 || f[0].Cause != v1alpha1.CauseRemoved || f[0].NameTaken {
		t.Errorf("failures %+v", f)
	}
}

// restarts counts restarted watches by resource.
type restarts map[string]int

func (r restarts) Ghost(types.UID) bool { return false }

func (r restarts) Restart(resource string) bool {
	r[resource]++
	return true
}

// The API server has the pod, but its watch does not show it.
func TestASilentWatchOfPodsIsRestarted(t *testing.T) {
	b := newBench(t)
	watches := restarts{}
	b.Watches = watches
	b.Client = interceptor.NewClient(b.Client.(client.WithWatch), interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if _, ok := o.(*corev1.Pod); ok {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, key.Name)
		}
		return c.Get(ctx, key, o, opts...)
	}})
	if again := b.reconcile().RequeueAfter; again > podShown {
		t.Errorf("it is looked at again after %s", again)
	}
	b.passes(1, podShown-time.Second)
	if len(watches) != 0 {
		t.Errorf("at once: %v", watches)
	}
	b.passes(1, time.Second)
	if watches["pods"] != 1 || b.runner().Status.State != v1alpha1.RunnerPending {
		t.Errorf("%v, %s", watches, b.runner().Status.State)
	}
}

// The API server refuses to delete a runner that a user wants to end. Nothing reports that it ended.
func TestARunnerThatMayNotBeTerminatedIsNotReportedAsEnded(t *testing.T) {
	b := newBench(t)
	b.reconcile()
	r := b.runner()
	r.Annotations = map[string]string{v1alpha1.TerminateAnnotation: "mines coins"}
	b.update(r)
	b.Client = interceptor.NewClient(b.Client.(client.WithWatch), interceptor.Funcs{Delete: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.DeleteOption) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "runners"}, o.GetName(), errors.New("frozen"))
	}})
	b.passes(3, EndRetry)
	for range len(b.events) {
		if e := <-b.events; strings.Contains(e, terminatedEvent) {
			t.Error(e)
		}
	}
}

// A registration that is left on GitHub is reported and counted once, although later passes wait for the end of the pod.
// The same applies to a pod that outlives its deletion.
func TestAnAbandonedRegistrationIsReportedOnce(t *testing.T) {
	b := newBench(t)
	b.reconcile()
	b.setPod(running(b.now))
	b.reconcile()
	pod := b.pod()
	pod.Finalizers = []string{"example.com/hold"}
	b.update(pod)
	b.Clients.(*registry).gone = true
	b.delete()
	b.now = b.runner().DeletionTimestamp.Add(jobUnknownAfter)
	b.Client = interceptor.NewClient(b.Client.(client.WithWatch), interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
		return errors.New("the API server is away") // the finalizer cannot be removed
	}})
	before := testutil.ToFloat64(orphansTotal)
	for range 4 {
		b.now = b.now.Add(time.Second)
		_, _ = b.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "ci", Name: "linux-a"}})
	}
	counts := map[string]int{}
	for range len(b.events) {
		counts[strings.Fields(<-b.events)[1]]++
	}
	if left, stuck := counts[catalog.ConnectionGone.Reason], counts[string(v1alpha1.CauseRemoved)]; left != 1 || stuck != 1 {
		t.Errorf("%d events about the registration, %d about the pod", left, stuck)
	}
	if got := testutil.ToFloat64(orphansTotal) - before; got != 1 {
		t.Errorf("%v registrations counted", got)
	}
}

// A runner that finished is deleted although its registration cannot be read any more.
func TestAFinishedRunnerEndsDespiteAStartError(t *testing.T) {
	b := newBench(t)
	b.reconcile()
	b.setPod(ended(b.now))
	pod := b.pod()
	delete(pod.Annotations, v1alpha1.RunnerIDAnnotation)
	b.update(pod)
	if err := b.Client.Delete(t.Context(), get(b, &corev1.Secret{}, "linux-a-jit")); err != nil {
		t.Fatal(err)
	}
	b.Memory = NewMemory()
	r := b.runner()
	r.Status = v1alpha1.RunnerStatus{Job: &v1alpha1.JobReference{ID: "7", CompletedAt: &metav1.Time{Time: b.now}}}
	if err := b.Client.Status().Update(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	b.reconcile()
	if r := b.runner(); r.Status.State != v1alpha1.RunnerFinished || r.DeletionTimestamp.IsZero() {
		t.Errorf("status %+v", r.Status)
	}
}
