// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github/rest"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/sim/githubsim"
	"github.com/corral-dev/corral/sim/githubsim/simrunner"
)

// newPersistentBench returns a bench with a persistent Runner.
func newPersistentBench(t *testing.T) *bench {
	t.Helper()
	b := newRESTBench(t)
	r, p := b.runner(), b.pool()
	r.Spec.REST.Persistent, p.Spec.Lifetime = true, v1alpha1.LifetimePersistent
	b.update(r)
	b.update(p)
	return b
}

// configure does what the container does first: it registers the runner.
func (b *bench) configure() (config string) {
	b.t.Helper()
	token := get(b, &corev1.Secret{}, podspec.SecretName("linux-a")).Data[podspec.RegistrationTokenKey]
	config, err := simrunner.Hooks{}.Configure(b.t.Context(), string(token), b.pod().Spec.Containers[0].Args)
	if err != nil {
		b.t.Fatal(err)
	}
	return config
}

// stay runs the persistent runner's process until the returned function is called. A killed process reports nothing to
// GitHub.
func (b *bench) stay(config string) (stop func(kill bool)) {
	b.t.Helper()
	ctx, cancel := context.WithCancelCause(b.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = simrunner.Hooks{}.Stay(ctx, config)
	}()
	b.until("the runner", func(r githubsim.Report) bool { return len(r.Runners) == 1 && r.Runners[0].Online })
	return func(kill bool) {
		if kill {
			cancel(errors.New("killed"))
		} else {
			cancel(nil)
		}
		<-done
	}
}

// tell records the webhook events of the runner's jobs.
func (b *bench) tell(events ...scaleset.JobEvent) {
	b.t.Helper()
	for i := range events {
		events[i].RunnerName, events[i].At = "linux-a", b.now
	}
	recorder := &Recorder{Client: b.Client, Namespace: "ci", Memory: b.Memory}
	if err := recorder.RecordJobs(b.t.Context(), events); err != nil {
		b.t.Fatal(err)
	}
}

func began(id string, runner int64) scaleset.JobEvent {
	return scaleset.JobEvent{Type: scaleset.JobStarted, JobID: id, RunnerID: runner, Repository: "acme/app"}
}

func over(id string, runner int64) scaleset.JobEvent {
	return scaleset.JobEvent{Type: scaleset.JobCompleted, JobID: id, RunnerID: runner, Result: "succeeded"}
}

func TestAPersistentRunnerRegistersByATokenOfItsSecret(t *testing.T) {
	b := newPersistentBench(t)
	before := b.github.Report().Requests[githubsim.EndpointRegistrationToken]
	b.reconcile()
	secret := get(b, &corev1.Secret{}, podspec.SecretName("linux-a"))
	if b.registered() != 0 || b.pod() == nil || len(secret.Data) != 1 {
		t.Fatalf("%d registrations, pod %v, Secret with %d keys", b.registered(), b.pod(), len(secret.Data))
	}
	b.setPod(running(b.now))
	b.configure()
	b.reconcile()
	if r := b.runner(); r.Status.State != v1alpha1.RunnerIdle || r.Status.RunnerID != 0 {
		t.Errorf("status %+v", r.Status)
	}
	b.collect(b.newCollector(), time.Second)
	b.reconcile()
	if r, made := b.runner(), b.github.Report().Runners; len(made) != 1 || int64(made[0].ID) != r.Status.RunnerID || r.Spec.REST.Labels[0] != made[0].Labels[0] {
		t.Errorf("registered %+v, status %+v", made, r.Status)
	}
	if n := b.github.Report().Requests[githubsim.EndpointRegistrationToken] - before; n != 1 {
		t.Errorf("it got %d tokens", n)
	}
}

func TestWhatHasAPersistentRunnersNameIsClearedFirst(t *testing.T) {
	mine := restPool().GetMarkedLabels(testCluster)
	for name, tc := range map[string]struct {
		labels []string
		failed bool
	}{
		"left behind":     {mine, false},
		"somebody else's": {[]string{"gpu"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newPersistentBench(t)
			gh, _ := b.REST.Get("")
			if _, err := gh.GenerateJIT(t.Context(), rest.Registration{Name: "linux-a", Labels: tc.labels}); err != nil {
				t.Fatal(err)
			}
			b.reconcile()
			failed := b.runner() == nil || b.runner().Status.State == v1alpha1.RunnerFailed
			if failed != tc.failed || (b.registered() == 1) != tc.failed || (b.pod() == nil) != tc.failed {
				t.Errorf("failed: %t, %d registrations, pod %v", failed, b.registered(), b.pod())
			}
		})
	}
}

func TestATokenWhoseAnswerWasLostIsUsed(t *testing.T) {
	b := newPersistentBench(t)
	b.reconcile()
	pod := b.pod()
	if err := b.Client.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	b.Memory = NewMemory() // another process, which finds the Secret and no pod
	b.reconcile()
	if b.pod() == nil {
		t.Errorf("no pod: %+v", b.runner().Status)
	}
}

func TestAPersistentRunnerTakesJobAfterJob(t *testing.T) {
	b := newPersistentBench(t)
	b.reconcile()
	b.setPod(running(b.now))
	b.tell(began("7", 5))
	b.reconcile()
	r, pod := b.runner(), b.pod()
	if r.Status.State != v1alpha1.RunnerBusy || r.Status.RunnerID != 5 || pod.Labels[v1alpha1.JobIDLabel] != "7" || pod.Annotations[podspec.SafeToEvictAnnotation] != "false" {
		t.Fatalf("with a job: %+v; pod %v %v", r.Status, pod.Labels, pod.Annotations)
	}
	b.now = b.now.Add(time.Minute)
	b.tell(over("7", 5))
	b.reconcile()
	b.tell(over("7", 5), began("7", 5)) // repeated, and in another order
	b.reconcile()
	r, pod = b.runner(), b.pod()
	if r.Status.State != v1alpha1.RunnerIdle || r.Status.JobsDone != 1 || !r.DeletionTimestamp.IsZero() || pod.Labels[v1alpha1.JobIDLabel] != "" || pod.Annotations[podspec.SafeToEvictAnnotation] != "true" {
		t.Fatalf("after it: %+v; pod %v %v", r.Status, pod.Labels, pod.Annotations)
	}
	b.now = b.now.Add(time.Minute)
	b.tell(began("8", 5))
	b.Memory = NewMemory() // from here on, another process
	b.reconcile()
	if r := b.runner(); r.Status.State != v1alpha1.RunnerBusy || r.Status.Job.ID != "8" {
		t.Errorf("with the next: %+v", r.Status)
	}
	b.tell(over("8", 5))
	b.reconcile()
	if r := b.runner(); r.Status.State != v1alpha1.RunnerIdle || r.Status.JobsDone != 2 {
		t.Errorf("after the next: %+v", r.Status)
	}
	if b.failures() != nil {
		t.Error("it failed")
	}
}

// After a crash between recording the job's end and removing the mark, the next pass removes it.
func TestAMarkOfAJobThatIsOverIsTakenOff(t *testing.T) {
	b := newPersistentBench(t)
	b.reconcile()
	b.setPod(running(b.now))
	b.tell(began("7", 5))
	marked := b.pod()
	b.now = b.now.Add(time.Minute)
	b.tell(over("7", 5))
	again := b.pod()
	again.Labels, again.Annotations = marked.Labels, marked.Annotations
	b.update(again)
	b.reconcile()
	if pod := b.pod(); pod.Annotations[v1alpha1.JobAnnotation] != "" || b.runner().Status.State != v1alpha1.RunnerIdle {
		t.Errorf("%+v; pod %v", b.runner().Status, pod.Annotations)
	}
}

// Another job may be marked while the collector still handles the previous one.
func TestTheMarkOfAJobThatWasNotSeenIsLeft(t *testing.T) {
	b := newPersistentBench(t)
	b.reconcile()
	b.setPod(running(b.now))
	b.tell(began("7", 5))
	old := b.pod()
	b.now = b.now.Add(time.Minute)
	b.tell(began("8", 5))
	p := pass{Reconciler: b.Reconciler, runner: b.runner(), pod: old}
	if err := p.free(t.Context(), observation{}); err == nil {
		t.Error("it doesn't look again")
	}
	if pod := b.pod(); pod.Labels[v1alpha1.JobIDLabel] != "8" {
		t.Errorf("pod %v", pod.Labels)
	}
}

func TestAPersistentRunnerWithAJobIsNotEnded(t *testing.T) {
	b := newPersistentBench(t)
	b.reconcile()
	b.setPod(running(b.now))
	stop := b.stay(b.configure())
	defer stop(false)
	id, err := b.github.AddJob(githubsim.Job{Repository: "acme/app", Labels: []string{"gpu"}, Duration: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	b.until("the job", func(r githubsim.Report) bool { return r.Jobs[githubsim.JobRunning] == 1 })
	b.delete() // no event reported the job
	if after := b.reconcile().RequeueAfter; after != busyRetry || b.pod() == nil || b.registered() != 1 {
		t.Fatalf("looks again in %s; pod %v", after, b.pod())
	}
	b.github.CancelJob(id)
	b.until("its end", func(r githubsim.Report) bool { return r.Jobs[githubsim.JobRunning] == 0 })
	b.reconcile()
	b.reconcile()
	if b.pod() != nil || b.runner() != nil || b.registered() != 0 {
		t.Errorf("left behind: %+v", b.runner())
	}
}

// Anyone who administers runners on GitHub may change their labels at any time.
func TestARunnerWithAJobIsNotEndedWhoseLabelsWereTakenAway(t *testing.T) {
	for name, tc := range map[string]struct {
		persists, seen bool
		labels         []string
	}{
		"one that stays":                       {persists: true, seen: true},
		"one that stays, whose id isn't known": {persists: true},
		"one that gets another pool's mark":    {persists: true, seen: true, labels: []string{v1alpha1.OwnerLabel(testCluster, "p2")}},
		"one that takes one job":               {seen: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newRESTBench(t)
			if tc.persists {
				b = newPersistentBench(t)
			}
			b.reconcile()
			b.setPod(running(b.now))
			id, err := b.github.AddJob(githubsim.Job{Repository: "acme/app", Labels: []string{"gpu"}, Duration: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			if tc.persists {
				defer b.stay(b.configure())(false)
			} else {
				defer b.work()()
			}
			b.until("the job", func(r githubsim.Report) bool { return r.Jobs[githubsim.JobRunning] == 1 })
			registration := b.github.Report().Runners[0].ID
			if tc.seen {
				r := b.runner()
				r.Status.RunnerID = int64(registration)
				if err := b.Client.Status().Update(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
			b.restart()
			b.github.ChangeRunnerLabels(registration, tc.labels...)
			b.delete()
			b.now = b.runner().DeletionTimestamp.Add(time.Hour)
			if after := b.reconcile().RequeueAfter; after != busyRetry || b.pod() == nil {
				t.Fatalf("looks again in %s; pod %v", after, b.pod())
			}
			b.github.CancelJob(id)
			b.until("its end", func(r githubsim.Report) bool { return r.Jobs[githubsim.JobRunning] == 0 })
			if !tc.persists {
				b.setPod(ended(b.now))
			}
			b.passes(2, goneAfter)
			b.reconcile()
			if left := b.registered() > 0; b.runner() != nil || left != (tc.persists && (!tc.seen || tc.labels != nil)) {
				t.Errorf("left behind: %+v, registered: %t", b.runner(), left)
			}
		})
	}
}

// A Runner cannot take over another pool's registration by using its ID, because the registration bears that pool's mark.
func TestARegistrationWithAnotherPoolsMarkIsNotEnded(t *testing.T) {
	b := newRESTBench(t)
	gh, _ := b.REST.Get("")
	jit, err := gh.GenerateJIT(t.Context(), rest.Registration{Name: "linux-a", Labels: []string{"gpu", v1alpha1.OwnerLabel(testCluster, "p2")}})
	if err != nil {
		t.Fatal(err)
	}
	r := b.runner()
	r.Status.RunnerID = jit.RunnerID
	if err := b.Client.Status().Update(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	b.finish()
	if b.registered() != 1 {
		t.Error("it is gone")
	}
}

// GitHub never removes the registration of a runner with a job, so the job in the pod's mark is over by then.
func TestThePersistentRunnerLeavesItsClaimThatGitHubLetGoAfterAJob(t *testing.T) {
	b := newPersistentBench(t)
	b.cache(1)
	b.reconcile()
	b.setPod(running(b.now))
	defer b.stay(b.configure())(false)
	id, err := b.github.AddJob(githubsim.Job{Repository: "acme/app", Labels: []string{"gpu"}, Duration: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	b.until("the job", func(r githubsim.Report) bool { return r.Jobs[githubsim.JobRunning] == 1 })
	b.delete()
	b.reconcile()
	b.github.CancelJob(id)
	b.until("its end", func(r githubsim.Report) bool { return r.Jobs[githubsim.JobRunning] == 0 })
	b.reconcile()
	b.reconcile()
	if b.runner() != nil || b.claim(0) == nil {
		t.Errorf("runner %+v, claim %v; %s", b.runner(), b.claim(0), b.allEvents())
	}
}

func TestAPersistentRunnerThatMayRegisterYetIsWaitedFor(t *testing.T) {
	b := newPersistentBench(t)
	b.reconcile()
	b.setPod(running(b.now))
	b.delete()
	if after := b.reconcile().RequeueAfter; after == 0 || b.pod() == nil {
		t.Fatalf("looks again in %s; pod %v", after, b.pod())
	}
	b.configure()
	b.passes(2, busyRetry)
	if b.pod() != nil || b.runner() != nil || b.registered() != 0 {
		t.Errorf("left behind: %+v, %d registrations", b.runner(), b.registered())
	}
}

// The container may start, and the runner register and get a job, before the cache shows it.
func TestThePodOfARunnerThatMayStartIsDeletedAsItWasRead(t *testing.T) {
	b := newPersistentBench(t)
	b.reconcile()
	shown := b.pod().DeepCopy()
	b.setPod(running(b.now))
	b.delete()
	b.configure()
	direct := b.Client
	b.Client = interceptor.NewClient(direct.(client.WithWatch), interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if pod, isPod := o.(*corev1.Pod); isPod {
			shown.DeepCopyInto(pod)
			return nil
		}
		return c.Get(ctx, key, o, opts...)
	}})
	b.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointRunners, Status: 200, Body: `{"total_count":0,"runners":[]}`}) // it registered a moment ago
	b.reconcile()
	b.Client = direct
	if b.pod() == nil {
		t.Error("the pod is deleted although its container runs")
	}
}

// A persistent runner registers itself and may get a job at once. While it runs, it may have a job even if GitHub does not
// list it.
func TestAPersistentRunnerThatNeverRegistersIsGivenUp(t *testing.T) {
	for name, tc := range map[string]struct {
		state func(b *bench) corev1.ContainerState
		looks int // a minute apart
		goes  bool
	}{
		"it runs again since a moment":     {func(b *bench) corev1.ContainerState { return running(b.now) }, 10, false},
		"and again":                        {func(b *bench) corev1.ContainerState { return running(b.now) }, 11, true},
		"it is down, so it can't register": {func(b *bench) corev1.ContainerState { return ended(b.now) }, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newPersistentBench(t)
			b.reconcile()
			b.setPod(running(b.now))
			b.delete()
			b.now = b.runner().DeletionTimestamp.Time
			pod, token := b.pod(), get(b, &corev1.Secret{}, podspec.SecretName("linux-a")).Data[podspec.RegistrationTokenKey]
			for range tc.looks {
				b.setPod(tc.state(b))
				b.passes(1, absentLook)
			}
			if gone := b.pod() == nil; gone != tc.goes {
				t.Fatalf("its pod is gone: %t", gone)
			}
			if !tc.goes {
				return
			}
			if _, err := (simrunner.Hooks{}).Configure(t.Context(), string(token), pod.Spec.Containers[0].Args); err != nil { // at the last moment
				t.Fatal(err)
			}
			b.reconcile()
			if b.runner() != nil || b.registered() != 0 {
				t.Errorf("left behind: %+v, %d registrations", b.runner(), b.registered())
			}
		})
	}
}

func TestPersistentRunnerThatExitsRepeatedlyFails(t *testing.T) {
	b := newPersistentBench(t)
	b.reconcile()
	down := ended(b.now)
	b.setPod(down)
	pod := b.pod()
	pod.Status.Phase = corev1.PodRunning
	b.update(pod)
	b.reconcile()
	if r := b.runner(); r.Status.State != v1alpha1.RunnerPending || !strings.HasPrefix(r.Status.Reason, "restarting: ") || !r.DeletionTimestamp.IsZero() {
		t.Fatalf("status %+v", r.Status)
	}
	b.now = b.now.Add(2 * time.Minute)
	for range 3 {
		b.reconcile()
	}
	if failures := b.failures(); len(failures) != 1 || failures[0].Clean || failures[0].Cause != v1alpha1.CauseCrash || b.runner() != nil {
		t.Errorf("failures %+v, runner %+v", failures, b.runner())
	}
}

func TestListsTellOfAPersistentRunnersJobs(t *testing.T) {
	b := newPersistentBench(t)
	c := b.newCollector()
	b.reconcile()
	b.setPod(running(b.now))
	stop := b.stay(b.configure())
	defer stop(false)
	for round := range int32(2) {
		id, err := b.github.AddJob(githubsim.Job{Repository: "acme/app", Labels: []string{"gpu"}, Duration: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		b.until("the job", func(r githubsim.Report) bool { return r.Jobs[githubsim.JobRunning] == 1 })
		b.collect(c, time.Minute)
		b.reconcile()
		if r := b.runner(); r.Status.State != v1alpha1.RunnerBusy || r.Status.Job.ID != v1alpha1.UnknownJob || r.Status.JobsDone != round {
			t.Fatalf("with a job: %+v", r.Status)
		}
		b.github.CancelJob(id)
		b.until("its end", func(r githubsim.Report) bool { return r.Jobs[githubsim.JobRunning] == 0 })
		b.collect(c, time.Minute)
		b.reconcile()
		if r := b.runner(); r.Status.State != v1alpha1.RunnerIdle || r.Status.JobsDone != round+1 || !r.DeletionTimestamp.IsZero() {
			t.Fatalf("after it: %+v", r.Status)
		}
	}
}

func TestAPersistentRunnerThatGitHubDoesNotSeeIsReplaced(t *testing.T) {
	for name, tc := range map[string]struct {
		connects bool
		cause    v1alpha1.RunnerCause
	}{
		"it never registered":  {false, v1alpha1.CauseNeverConnected},
		"its node may be gone": {true, v1alpha1.CauseRemoved},
	} {
		t.Run(name, func(t *testing.T) {
			b := newPersistentBench(t)
			c := b.newCollector()
			b.reconcile()
			b.setPod(running(b.now))
			if tc.connects {
				stop := b.stay(b.configure())
				b.collect(c, time.Minute)
				stop(false)
			}
			for range 3 {
				b.collect(c, 2*time.Minute)
			}
			b.reconcile()
			b.now = b.now.Add(time.Hour)
			b.reconcile()
			if failures := b.failures(); len(failures) != 1 || failures[0].Cause != tc.cause {
				t.Errorf("failures %+v", failures)
			}
			if b.registered() != 0 {
				t.Errorf("%d registrations", b.registered())
			}
		})
	}
}

func TestAPersistentRunnerThatGitHubForgotIsReplaced(t *testing.T) {
	b := newPersistentBench(t)
	c := b.newCollector()
	b.reconcile()
	b.setPod(running(b.now))
	stop := b.stay(b.configure())
	b.collect(c, time.Minute)
	b.reconcile()
	b.github.PurgeRunner(int(b.runner().Status.RunnerID))
	stop(false)
	b.collect(c, 2*time.Minute)
	b.passes(2, goneAfter)
	if r := b.runner(); r.DeletionTimestamp.IsZero() {
		t.Fatalf("status %+v", r.Status)
	}
	b.passes(9, absentLook)
	if b.pod() == nil {
		t.Fatal("its pod was deleted, although nothing but GitHub's absence says that it has no job")
	}
	b.passes(3, absentLook)
	if b.runner() != nil || b.pod() != nil {
		t.Errorf("left behind: %+v", b.runner())
	}
}

// The pod of a persistent runner never ends by itself.
func TestThePodOfAPersistentRunnerThatIsGoneIsDeletedWhenItIsDownWithoutAJob(t *testing.T) {
	backOff := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
	for name, tc := range map[string]struct {
		state  corev1.ContainerState
		marked bool
		goes   bool
	}{
		"it runs":             {running(time.Unix(1, 0)), false, false},
		"it ended":            {ended(time.Unix(1, 0)), false, true},
		"it waits to run":     {backOff, false, true},
		"it ended in its job": {ended(time.Unix(1, 0)), true, false},
		"it starts":           {corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newPersistentBench(t)
			b.reconcile()
			b.setPod(tc.state)
			if tc.marked {
				b.tell(began("7", 5))
			}
			r := b.runner()
			r.Finalizers = nil
			b.update(r)
			b.delete()
			b.reconcile()
			if gone := b.pod() == nil; gone != tc.goes {
				t.Errorf("its pod is gone: %t", gone)
			}
		})
	}
}

func TestARunnerOfAnotherLifetimeIsNotItsPools(t *testing.T) {
	b := newPersistentBench(t)
	p := b.pool()
	p.Spec.Lifetime = v1alpha1.LifetimeJob
	b.update(p)
	b.reconcile()
	if r := b.runner(); b.pod() != nil || conditions.GetReason(r, v1alpha1.ReadyCondition) != v1alpha1.InvalidSpecReason || !strings.Contains(r.Status.Reason, "another runner lifetime") {
		t.Errorf("pod %v, status %+v", b.pod(), r.Status)
	}
}

// While its Secret is refused, a persistent runner asks GitHub for one token, and once for a registration with its name.
func TestASecretOfAPersistentRunnerThatIsRefused(t *testing.T) {
	b := newPersistentBench(t)
	refusal := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "x", errors.New("denied the request"))
	b.Client = interceptor.NewClient(b.Client.(client.WithWatch), interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		if _, ok := o.(*corev1.Secret); ok {
			return refusal
		}
		return c.Create(ctx, o, opts...)
	}})
	calls := func() (n int) {
		for _, of := range b.github.Report().Requests {
			n += of
		}
		return n
	}
	b.step(refusalRetry)
	first := calls()
	for range 4 {
		b.step(refusalRetry)
	}
	if more := calls() - first; more != 0 {
		t.Errorf("%d more calls", more)
	}
}
