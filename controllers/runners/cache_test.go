// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/claims"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/poolstatus"
)

// newCachedBench returns a bench whose pool has a cache with maxClaims claims.
func newCachedBench(t *testing.T, maxClaims int32) *bench {
	t.Helper()
	b := newBench(t)
	b.cache(maxClaims)
	return b
}

// cache gives the pool, and its revision, a cache with maxClaims claims.
func (b *bench) cache(maxClaims int32) {
	b.t.Helper()
	p, revision := b.pool(), get(b, &appsv1.ControllerRevision{}, "linux-1")
	p.Spec.Template.Raw = revision.Data.Raw
	p.Spec.Cache = &v1alpha1.CacheSpec{Size: "1Gi", MountPath: "/cache", MaxClaims: maxClaims}
	template, err := podspec.Template(p)
	if err != nil {
		b.t.Fatal(err)
	}
	revision.Data.Raw = template
	b.update(p)
	b.update(revision)
}

func (b *bench) claim(number int) *corev1.PersistentVolumeClaim {
	return get(b, &corev1.PersistentVolumeClaim{}, podspec.ClaimName("linux", number))
}

// formerOf creates a claim that a runner took an hour ago.
func (b *bench) formerOf(number int, name, uid string) {
	b.t.Helper()
	runner := &v1alpha1.Runner{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: name, UID: types.UID(uid)}}
	if err := (Claims{Client: b.Client}).create(b.t.Context(), b.pool(), number, runner, b.now.Add(-time.Hour)); err != nil {
		b.t.Fatal(err)
	}
}

// another creates one more runner of the pool.
func (b *bench) another(name, uid string) *v1alpha1.Runner {
	b.t.Helper()
	r := &v1alpha1.Runner{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: name, UID: types.UID(uid), Finalizers: []string{v1alpha1.RunnerFinalizer}, CreationTimestamp: metav1.Time{Time: b.now}},
		Spec: v1alpha1.RunnerSpec{
			PoolRef: v1alpha1.LocalObjectReference{Name: "linux"}, ConnectionRef: v1alpha1.ConnectionReference{Name: "acme"}, ScaleSetID: b.set.ID, Revision: "linux-1",
		},
	}
	r.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(b.pool(), v1alpha1.GroupVersion.WithKind("RunnerPool"))}
	b.create(r)
	return r
}

func (b *bench) reconcileOf(r *v1alpha1.Runner) {
	b.t.Helper()
	if _, err := b.Reconcile(b.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(r)}); err != nil {
		b.t.Fatal(err)
	}
}

// allEvents returns all events so far.
func (b *bench) allEvents() string {
	var all []string
	for len(b.events) > 0 {
		all = append(all, <-b.events)
	}
	return strings.Join(all, "\n")
}

// hiding returns a client whose cache does not show objects with the name.
func hiding(c client.Client, name string) client.Client {
	return interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if key.Name == name {
			return apierrors.NewNotFound(schema.GroupResource{}, name)
		}
		return c.Get(ctx, key, o, opts...)
	}})
}

func (b *bench) holder(number int) string {
	b.t.Helper()
	return b.claim(number).Annotations[v1alpha1.CacheHolderAnnotation]
}

func (b *bench) mounted() string { return b.pod().Annotations[v1alpha1.CacheClaimAnnotation] }

// doJob makes the runner's job begin and end, and reports both.
func (b *bench) doJob() {
	b.t.Helper()
	recorder := &Recorder{Client: b.Client, Namespace: "ci", Memory: b.Memory}
	b.setPod(ended(b.now))
	for _, e := range []scaleset.EventType{scaleset.JobStarted, scaleset.JobCompleted} {
		if err := recorder.RecordJobs(b.t.Context(), []scaleset.JobEvent{{Type: e, JobID: "j", RunnerName: "linux-a", Result: "succeeded", At: b.now}}); err != nil {
			b.t.Fatal(err)
		}
	}
}

func TestARunnerMakesAClaimAndLeavesItToTheNext(t *testing.T) {
	b := newCachedBench(t, 2)
	b.reconcile()
	c := b.claim(0)
	if c == nil || b.mounted() != c.Name || b.holder(0) != "linux-a/u1" || !metav1.IsControlledBy(c, b.pool()) || c.Labels[v1alpha1.CacheLabel] != "linux" {
		t.Fatalf("pod with %q, claim %+v", b.mounted(), c)
	}
	if mode := c.Spec.AccessModes; len(mode) != 1 || mode[0] != corev1.ReadWriteOncePod || c.Spec.Resources.Requests.Storage().String() != "1Gi" || c.Spec.StorageClassName != nil {
		t.Errorf("claim %+v", c.Spec)
	}
	b.doJob()
	b.reconcile()
	b.reconcile()
	if b.runner() != nil || b.claim(0) == nil {
		t.Fatalf("runner %+v, claim %+v", b.runner(), b.claim(0))
	}
	next := b.another("linux-b", "u2")
	b.reconcileOf(next)
	if got := b.holder(0); got != "linux-b/u2" || b.claim(1) != nil {
		t.Errorf("the claim is of %s, a second one is %v", got, b.claim(1))
	}
}

func TestTheClaimOfARunnerThatDiesWithItsJobIsDeleted(t *testing.T) {
	b := newCachedBench(t, 2)
	b.reconcile()
	recorder := &Recorder{Client: b.Client, Namespace: "ci", Memory: b.Memory}
	if err := recorder.RecordJobs(t.Context(), []scaleset.JobEvent{{Type: scaleset.JobStarted, JobID: "j", RunnerName: "linux-a", At: b.now}}); err != nil {
		t.Fatal(err)
	}
	b.setPod(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled", StartedAt: metav1.Time{Time: b.now}, FinishedAt: metav1.Time{Time: b.now}}})
	b.reconcile()
	b.reconcile()
	if b.runner() != nil || b.claim(0) != nil {
		t.Errorf("runner %v, claim %v", b.runner(), b.claim(0))
	}
	if told := b.allEvents(); !strings.Contains(told, "deleted cache claim corral-cache-linux-0: its runner died with its job") {
		t.Errorf("told: %s", told)
	}
}

// A runner that dies with exit code 0 does not report its job. GitHub ends the job much later, whether or not this process
// remembers that.
func TestTheClaimOfARunnerWhoseJobEndedLongAfterItIsDeleted(t *testing.T) {
	for late, kept := range map[time.Duration]bool{poolstatus.Settle: true, poolstatus.Settle + time.Second: false} {
		b := newCachedBench(t, 1)
		b.reconcile()
		recorder := &Recorder{Client: b.Client, Namespace: "ci", Memory: b.Memory}
		b.setPod(ended(b.now))
		b.now = b.now.Add(late)
		for _, e := range []scaleset.EventType{scaleset.JobStarted, scaleset.JobCompleted} {
			if err := recorder.RecordJobs(t.Context(), []scaleset.JobEvent{{Type: e, JobID: "j", RunnerName: "linux-a", Result: "failed", At: b.now}}); err != nil {
				t.Fatal(err)
			}
		}
		b.reconcile()
		b.reconcile()
		if b.runner() != nil || kept != (b.claim(0) != nil) {
			t.Errorf("after %s: runner %v, claim %v", late, b.runner(), b.claim(0))
		}
	}
}

// The claim's fate is decided before the pod is deleted, because only the pod may show how the runner ended.
func TestTheClaimIsDeletedBeforeThePod(t *testing.T) {
	b := newCachedBench(t, 1)
	b.reconcile()
	b.setPod(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, StartedAt: metav1.Time{Time: b.now}, FinishedAt: metav1.Time{Time: b.now}}})
	inner := b.Client
	b.Client = interceptor.NewClient(inner.(client.WithWatch), interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
		if _, isPod := o.(*corev1.Pod); isPod && b.claim(0) != nil {
			t.Error("the pod is deleted before its claim")
		}
		return c.Delete(ctx, o, opts...)
	}})
	b.reconcile()
	b.reconcile()
	if b.runner() != nil || b.claim(0) != nil {
		t.Errorf("runner %v, claim %v", b.runner(), b.claim(0))
	}
}

// Without the rights to delete its claim, the runner is still released, and no other runner gets the claim.
func TestAClaimThatMayNotBeDeletedHoldsUpNoEnd(t *testing.T) {
	for name, refused := range refusals() {
		t.Run(name, func(t *testing.T) { testAClaimThatMayNotBeDeleted(t, refused) })
	}
}

func testAClaimThatMayNotBeDeleted(t *testing.T, refused error) {
	t.Helper()
	b := newCachedBench(t, 1)
	b.reconcile()
	b.Client = interceptor.NewClient(b.Client.(client.WithWatch), interceptor.Funcs{Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
		if _, ok := o.(*corev1.PersistentVolumeClaim); ok {
			return refused
		}
		return c.Delete(ctx, o, opts...)
	}})
	b.setPod(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, StartedAt: metav1.Time{Time: b.now}, FinishedAt: metav1.Time{Time: b.now}}})
	b.reconcile()
	b.now = b.runner().DeletionTimestamp.Add(orphanAfter - time.Second)
	if _, err := b.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(b.runner())}); !errors.Is(err, refused) || b.runner() == nil {
		t.Fatalf("runner %v: %v", b.runner(), err)
	}
	b.now = b.now.Add(time.Second)
	b.reconcile()
	b.reconcile()
	told := b.allEvents()
	if b.runner() != nil || strings.Contains(told, cacheDeleted) || !strings.Contains(told, "Corral is not allowed to delete cache claim corral-cache-linux-0") {
		t.Fatalf("runner %v, told: %s", b.runner(), told)
	}
	b.reconcileOf(b.another("linux-b", "u2"))
	if c := b.claim(0); c == nil || c.Annotations[v1alpha1.CacheHolderAnnotation] != "" {
		t.Errorf("the claim is %v", c)
	}
}

// A claim does not expire at the moment when its holder ends, however long the holder had it.
func TestTheTimeToLiveBeginsAtTheEndOfALongRunner(t *testing.T) {
	for had, renewed := range map[time.Duration]bool{time.Hour: false, 100 * time.Hour: true} {
		b := newCachedBench(t, 1)
		b.reconcile()
		taken := b.now
		b.now = b.now.Add(had)
		b.doJob()
		b.reconcile()
		b.reconcile()
		want := taken
		if renewed {
			want = b.now
		}
		if got := timeOf(b.claim(0), v1alpha1.CacheTakenAnnotation); b.runner() != nil || !got.Equal(want) || b.holder(0) != "linux-a/u1" {
			t.Errorf("after %s: runner %v, taken at %s, not %s", had, b.runner(), got, want)
		}
	}
}

// Only GitHub knew of the job: it first refused to remove the registration, and then no longer knew it.
func TestARunnerThatGotAJobAsItWasEndedLeavesItsClaim(t *testing.T) {
	for exit, kept := range map[int32]bool{0: true, 1: false} {
		b := newRESTBench(t)
		b.cache(1)
		b.reconcile()
		end := b.job()
		b.setPod(running(b.now))
		b.delete()
		if after := b.reconcile().RequeueAfter; after != busyRetry {
			t.Fatalf("looks again in %s", after)
		}
		end()
		over := ended(b.now)
		over.Terminated.ExitCode = exit
		b.setPod(over)
		b.passes(2, goneAfter)
		b.reconcile()
		if b.runner() != nil || kept != (b.claim(0) != nil) {
			t.Errorf("exit code %d: runner %v, claim %v, told %s", exit, b.runner(), b.claim(0), b.allEvents())
		}
	}
}

func TestAnIdleRunnerThatIsNotWantedLeavesItsClaim(t *testing.T) {
	b := newCachedBench(t, 1)
	b.reconcile()
	b.setPod(running(b.now))
	b.reconcile()
	b.delete()
	b.reconcile()
	b.reconcile()
	if b.runner() != nil || b.claim(0) == nil {
		t.Errorf("runner %v, claim %v", b.runner(), b.claim(0))
	}
}

// The container died during a job that is over for GitHub by now. It waits to restart, or has restarted.
func TestTheClaimOfAPersistentRunnerThatCrashedIsDeleted(t *testing.T) {
	again := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	for name, tc := range map[string]struct {
		exit  int32
		state corev1.ContainerState
		kept  bool
	}{
		"killed, waits": {137, again, false}, "killed, runs again": {137, running(time.Unix(2, 0)), false}, "ended well, runs again": {0, running(time.Unix(2, 0)), true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newPersistentBench(t)
			b.cache(1)
			b.reconcile()
			if b.claim(0) == nil {
				t.Fatal("it has no claim")
			}
			b.configure()
			pod := b.pod()
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: v1alpha1.RunnerContainerName, State: tc.state, LastTerminationState: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{ExitCode: tc.exit, StartedAt: metav1.Time{Time: b.now}, FinishedAt: metav1.Time{Time: b.now}},
			}}}
			if err := b.Client.Status().Update(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
			b.delete()
			b.reconcile()
			b.reconcile()
			if b.runner() != nil || tc.kept != (b.claim(0) != nil) {
				t.Errorf("runner %v, claim %v", b.runner(), b.claim(0))
			}
		})
	}
}

func TestAClaimIsTakenOverOnlyWhenItsHolderAndItsPodAreGone(t *testing.T) {
	for name, there := range map[string]client.Object{
		"the holder":          &v1alpha1.Runner{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "linux-z", UID: "uid-z"}},
		"its pod":             &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "linux-z", Annotations: map[string]string{v1alpha1.RunnerUIDAnnotation: "uid-z"}}},
		"neither, but others": &v1alpha1.Runner{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "linux-z", UID: "uid-other"}},
	} {
		for where, live := range map[string]bool{"cache": false, "API server": true} {
			t.Run(name+" in the "+where, func(t *testing.T) {
				b := newCachedBench(t, 1)
				b.formerOf(0, "linux-z", "uid-z")
				b.create(there.DeepCopyObject().(client.Object))
				if live { // the cache does not show it yet
					b.Client = hiding(b.Client, "linux-z")
				}
				b.reconcile()
				taken, want := b.mounted() != "", strings.HasPrefix(name, "neither")
				if taken != want || want != (b.holder(0) == "linux-a/u1") {
					t.Errorf("taken: %t, holder %s", taken, b.holder(0))
				}
			})
		}
	}
}

func TestWithoutAFreeClaimTheRunnerStartsWithoutOrWaits(t *testing.T) {
	for missing, want := range map[v1alpha1.CacheMissing]string{
		"": "it starts without a cache: none of at most 1 claims is free: 1 in use", v1alpha1.WaitForClaim: "spec.cache: none of at most 1 claims is free: 1 in use",
	} {
		t.Run(string(missing), func(t *testing.T) {
			b := newCachedBench(t, 1)
			p := b.pool()
			p.Spec.Cache.OnMissing = missing
			b.update(p)
			b.formerOf(0, "linux-z", "uid-z")
			b.create(&v1alpha1.Runner{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "linux-z", UID: "uid-z"}})
			result := b.reconcile()
			if missing == v1alpha1.WaitForClaim {
				r := b.runner()
				if b.pod() != nil || r.Status.Cause != v1alpha1.CauseCache || !strings.HasPrefix(r.Status.Reason, want) || result.RequeueAfter == 0 || result.RequeueAfter > claimRetry {
					t.Errorf("pod %v, status %+v, again after %s", b.pod(), r.Status, result.RequeueAfter)
				}
				return
			}
			missed := b.Memory.SinceLastPass(client.ObjectKey{Namespace: "ci", Name: "linux"}).Missed
			if b.pod() == nil || b.mounted() != "" || len(b.pod().Spec.Volumes) > 0 || !strings.Contains(b.allEvents(), want) || missed == nil || missed.Runner != "linux-a" || !strings.HasPrefix(missed.Reason, "none") {
				t.Errorf("pod %v, missed %+v", b.pod(), missed)
			}
		})
	}
}

// A node removes a pod some time after it ended. The replacement waits for that, for a limited time. Otherwise it would
// start without a cache in every pool that is full.
func TestARunnerWaitsShortlyForAClaimThatLeaves(t *testing.T) {
	for name, tc := range map[string]struct {
		age   time.Duration // of the runner
		ended bool          // the holder, whose Runner is gone and whose pod is being deleted
		waits bool
	}{
		"the pod of the holder is going": {0, true, true},
		"it doesn't go":                  {leavingWait, true, false},
		"the holder goes on":             {0, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newCachedBench(t, 1)
			b.formerOf(0, "linux-z", "uid-z")
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: "ci", Name: "linux-z", Annotations: map[string]string{v1alpha1.RunnerUIDAnnotation: "uid-z"}, Finalizers: []string{"node"},
			}}
			b.create(pod)
			if tc.ended {
				if err := b.Client.Delete(t.Context(), pod); err != nil {
					t.Fatal(err)
				}
				pod = get(b, &corev1.Pod{}, "linux-z")
				b.now = pod.DeletionTimestamp.Truncate(time.Second)
			}
			next := b.another("linux-b", "u2")
			b.now = b.now.Add(tc.age)
			b.reconcileOf(next)
			made := get(b, &corev1.Pod{}, "linux-b")
			if (made == nil) != tc.waits {
				t.Fatalf("waits: %t", made == nil)
			}
			if !tc.waits {
				return
			}
			if cause := get(b, &v1alpha1.Runner{}, "linux-b").Status.Cause; cause != "" {
				t.Errorf("it waits for %s", cause)
			}
			pod.Finalizers = nil
			b.update(pod)
			b.reconcileOf(next)
			if made := get(b, &corev1.Pod{}, "linux-b"); made == nil || made.Annotations[v1alpha1.CacheClaimAnnotation] == "" {
				t.Errorf("with the claim free: %+v", made)
			}
		})
	}
}

func TestAQuotaOnClaimsIsToldByItsCause(t *testing.T) {
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumeclaims"}, "corral-cache-linux-0", fmt.Errorf("exceeded quota: storage, requested: requests.storage=1Gi"))
	for _, missing := range []v1alpha1.CacheMissing{v1alpha1.StartWithout, v1alpha1.WaitForClaim} {
		b := newCachedBench(t, 1)
		p := b.pool()
		p.Spec.Cache.OnMissing = missing
		b.update(p)
		b.Client = interceptor.NewClient(b.Client.(client.WithWatch), interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if _, ok := o.(*corev1.PersistentVolumeClaim); ok {
				return quota
			}
			return c.Create(ctx, o, opts...)
		}})
		b.reconcile()
		r := b.runner()
		if starts := missing == v1alpha1.StartWithout; starts != (b.pod() != nil) || starts != strings.Contains(b.allEvents(), "exceeded quota: storage") || !starts && (r.Status.Cause != v1alpha1.CauseQuota || !strings.Contains(r.Status.Reason, "exceeded quota: storage")) {
			t.Errorf("%s: pod %v, status %+v", missing, b.pod(), r.Status)
		}
	}
}

func TestAClaimOfAnotherZoneIsLeftAloneForAWhile(t *testing.T) {
	b := newCachedBench(t, 2)
	b.formerOf(0, "linux-z", "uid-z")
	b.reconcile()
	if b.mounted() != podspec.ClaimName("linux", 0) {
		t.Fatal("the free claim isn't taken")
	}
	pod := b.pod()
	pod.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, LastTransitionTime: metav1.Time{Time: b.now},
		Message: "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had volume node affinity conflict.",
	}}
	if err := b.Client.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	b.reconcile()
	if r := b.runner(); r.Status.Cause != v1alpha1.CauseCache || r.Status.State != v1alpha1.RunnerPending {
		t.Fatalf("status %+v", r.Status)
	}
	b.now = b.now.Add(30 * time.Second)
	for range 3 {
		b.reconcile()
	}
	if b.runner() != nil {
		t.Fatalf("it isn't replaced: %+v", b.runner().Status)
	}
	b.reconcileOf(b.another("linux-b", "u2"))
	if got := b.holder(1); got != "linux-b/u2" || b.claim(0) == nil {
		t.Errorf("the next runner has not the other claim: %s", got)
	}
	if f := b.Memory.SinceLastPass(client.ObjectKey{Namespace: "ci", Name: "linux"}).Failures; len(f) != 1 || f[0].Cause.Permanent() {
		t.Errorf("failures %+v", f)
	}
}

// No provisioner creates volumes of the class. Otherwise each runner would create another claim and wait for it until its
// deadline.
func TestRunnersStartWithoutAClaimWhereTheClassHasNoVolumes(t *testing.T) {
	b := newCachedBench(t, 100)
	b.reconcile()
	c := b.claim(0)
	c.Status.Phase = corev1.ClaimPending
	if err := b.Client.Status().Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	b.now = b.now.Add(v1alpha1.DefaultStartupDeadline)
	for range 3 {
		b.reconcile()
	}
	if b.runner() != nil || b.claim(0).Annotations[v1alpha1.CacheFailedAtAnnotation] == "" {
		t.Fatalf("it isn't replaced: %+v, claim %+v", b.runner(), b.claim(0))
	}
	mounts := func(name string) string {
		b.reconcileOf(b.another(name, "uid-"+name))
		return get(b, &corev1.Pod{}, name).Annotations[v1alpha1.CacheClaimAnnotation]
	}
	if got := mounts("linux-b"); got != "" || !strings.Contains(b.allEvents(), "new ones get no volume") {
		t.Errorf("the next runner has %q", got)
	}
	b.now = b.now.Add(claims.BlameFor)
	if first, second := mounts("linux-c"), mounts("linux-d"); first != "corral-cache-linux-0" || second != "" {
		t.Errorf("later, two have %q and %q", first, second)
	}
	c = b.claim(0)
	c.Status.Phase = corev1.ClaimBound
	if err := b.Client.Status().Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if got := mounts("linux-e"); got != "corral-cache-linux-1" {
		t.Errorf("once there are volumes, a runner has %q", got)
	}
}

// A claim that this process saw becoming free costs one request, which takes it.
func TestACacheCostsOneRequestAJob(t *testing.T) {
	b := newCachedBench(t, 1)
	var asked []string
	note := func(verb string, o client.Object) { asked = append(asked, fmt.Sprintf("%s %T", verb, o)) }
	counted := interceptor.NewClient(b.Client.(client.WithWatch), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if _, ok := o.(*corev1.PersistentVolumeClaim); ok {
				note("patch", o)
			}
			return c.Patch(ctx, o, p, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if _, ok := o.(*corev1.PersistentVolumeClaim); ok {
				note("create", o)
			}
			return c.Create(ctx, o, opts...)
		},
	})
	b.Client = counted
	b.Live = interceptor.NewClient(counted, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		switch o.(type) {
		case *corev1.Namespace, *corev1.Secret: // once per namespace and per pool
		default:
			note("get", o)
		}
		return c.Get(ctx, key, o, opts...)
	}})
	b.reconcile()
	b.doJob()
	for range 3 {
		b.reconcile()
	}
	if b.runner() != nil {
		t.Fatal("the runner is there")
	}
	b.reconcileOf(b.another("linux-b", "u2"))
	if want := []string{"create *v1.PersistentVolumeClaim", "patch *v1.PersistentVolumeClaim"}; !slices.Equal(asked, want) {
		t.Errorf("asked: %v", asked)
	}
	b.finishOther("linux-b")
	b.restart()
	asked = nil
	b.reconcileOf(b.another("linux-c", "u3"))
	if len(asked) != 3 {
		t.Errorf("after a restart: %v", asked)
	}
}

// finishOther removes a runner as if it had never been started.
func (b *bench) finishOther(name string) {
	b.t.Helper()
	r := get(b, &v1alpha1.Runner{}, name)
	r.Finalizers = nil
	b.update(r)
	for _, o := range []client.Object{r, get(b, &corev1.Pod{}, name)} {
		if err := b.Client.Delete(b.t.Context(), o); err != nil {
			b.t.Fatal(err)
		}
	}
}

func TestAClaimThatAnotherTookMeanwhileIsLeftToIt(t *testing.T) {
	b := newCachedBench(t, 2)
	b.formerOf(0, "linux-z", "uid-z")
	stale := &corev1.PersistentVolumeClaimList{}
	if err := b.Client.List(t.Context(), stale); err != nil {
		t.Fatal(err)
	}
	taken := b.claim(0)
	taken.Annotations[v1alpha1.CacheHolderAnnotation] = "linux-y/uid-y"
	b.update(taken)
	b.Client = interceptor.NewClient(b.Client.(client.WithWatch), interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
		if l, ok := l.(*corev1.PersistentVolumeClaimList); ok {
			stale.DeepCopyInto(l)
			return nil
		}
		return c.List(ctx, l, opts...)
	}})
	b.reconcile()
	if b.holder(0) != "linux-y/uid-y" || b.holder(1) != "linux-a/u1" || b.mounted() != podspec.ClaimName("linux", 1) {
		t.Errorf("claim 0 is of %s, the pod has %s", b.holder(0), b.mounted())
	}
}

// Kubernetes protects a deleted claim only for pods that have a node. A pod that waits for a node would also use a new
// claim with that name.
func TestAClaimThatAPodWaitsForIsNotMadeForAnother(t *testing.T) {
	for name, shown := range map[string]bool{"the cache shows the pod": true, "the cache doesn't yet": false} {
		t.Run(name, func(t *testing.T) {
			b := newCachedBench(t, 2)
			b.reconcile()
			b.reconcileOf(b.another("linux-b", "u2"))
			if err := b.Client.Delete(t.Context(), b.claim(0)); err != nil {
				t.Fatal(err)
			}
			if shown {
				b.restart()
			} else {
				b.Client = interceptor.NewClient(b.Client.(client.WithWatch), interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
					if _, ok := l.(*corev1.PodList); ok {
						return nil
					}
					return c.List(ctx, l, opts...)
				}})
			}
			b.reconcileOf(b.another("linux-c", "u3"))
			if b.claim(0) != nil || !strings.Contains(b.allEvents(), "none of at most 2 claims is free: 2 in use") {
				t.Errorf("claim 0 is %v", b.claim(0))
			}
		})
	}
}

// A user deletes the claim, and nothing remains of it.
func TestAClaimThatIsGoneHoldsUpNoEnd(t *testing.T) {
	b := newCachedBench(t, 1)
	b.reconcile()
	if err := b.Client.Delete(t.Context(), b.claim(0)); err != nil {
		t.Fatal(err)
	}
	b.now = b.now.Add(claimShown)
	b.setPod(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, StartedAt: metav1.Time{Time: b.now}, FinishedAt: metav1.Time{Time: b.now}}})
	b.reconcile()
	b.reconcile()
	if b.runner() != nil {
		t.Errorf("it isn't let go: %+v", b.runner().Status)
	}
}

// A runner of a revision without a cache takes no claim, although its pool has a cache by now.
func TestARunnerOfARevisionWithoutACacheTakesNoClaim(t *testing.T) {
	b := newCachedBench(t, 1)
	revision := get(b, &appsv1.ControllerRevision{}, "linux-1")
	revision.Data.Raw = b.pool().Spec.Template.Raw
	b.update(revision)
	b.reconcile()
	if b.pod() == nil || b.claim(0) != nil || b.mounted() != "" {
		t.Errorf("pod %v, claim %v", b.pod(), b.claim(0))
	}
}

// A persistent runner would never have a cache, so it waits for a while for the claim of a runner that is ending.
func TestAPersistentRunnerWaitsForTheClaimOfOneThatEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		persists, isEnding bool
		age                time.Duration
		waits              bool
	}{
		"of one that ends":             {true, true, time.Minute, true},
		"not of one that stays":        {true, false, time.Minute, false},
		"not for long":                 {true, true, 3 * time.Minute, false},
		"not one that takes one job":   {false, true, time.Minute, false},
		"of one that ends, at the end": {true, true, 2 * time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			if tc.persists {
				b = newPersistentBench(t)
			}
			b.cache(1)
			b.formerOf(0, "linux-z", "uid-z")
			former := &v1alpha1.Runner{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "linux-z", UID: "uid-z", Finalizers: []string{v1alpha1.RunnerFinalizer}}}
			b.create(former)
			if tc.isEnding {
				if err := b.Client.Delete(t.Context(), former); err != nil {
					t.Fatal(err)
				}
			}
			b.now = b.now.Add(tc.age)
			b.reconcile()
			if waits := b.pod() == nil; waits != tc.waits {
				t.Fatalf("it waits: %t; %s", waits, b.allEvents())
			}
			if !tc.waits {
				if b.mounted() != "" || !strings.Contains(b.allEvents(), "it starts without a cache") {
					t.Errorf("it has %q", b.mounted())
				}
				return
			}
			former = get(b, &v1alpha1.Runner{}, "linux-z")
			former.Finalizers = nil
			b.update(former)
			b.reconcile()
			if b.pod() == nil || b.mounted() != "corral-cache-linux-0" {
				t.Errorf("once that is gone, pod %v; %s", b.pod(), b.allEvents())
			}
		})
	}
}

// Notes about deleted claims are dropped.
func TestNotesOfClaimsGoWithThem(t *testing.T) {
	b := newCachedBench(t, 1)
	b.reconcile()
	b.doJob()
	b.finish()
	claim := client.ObjectKeyFromObject(b.claim(0))
	if !b.Memory.claims.sawGone(claim, "u1") {
		t.Fatal("it isn't known that its holder is gone")
	}
	claims := Claims{b.Client, b.Live, b.Memory}
	if _, err := claims.Of(t.Context(), b.pool()); err != nil || !b.Memory.claims.sawGone(claim, "u1") {
		t.Error("it is forgotten while the claim is there")
	}
	if err := b.Client.Delete(t.Context(), b.claim(0)); err != nil {
		t.Fatal(err)
	}
	if _, err := claims.Of(t.Context(), b.pool()); err != nil || len(b.Memory.claims.gone) > 0 {
		t.Errorf("noted is %v", b.Memory.claims.gone)
	}
}
