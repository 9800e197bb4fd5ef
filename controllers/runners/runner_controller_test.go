// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runners

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/connections"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/poolstatus"
	"github.com/corral-dev/corral/sim/githubsim"
)

// bench is one Runner on a fake cluster, and a simulated GitHub with its scale set.
type bench struct {
	*Reconciler
	t      *testing.T
	github *githubsim.Running
	set    *scaleset.Set
	now    time.Time
	events chan string
}

// registry returns one client, unless it is gone.
type registry struct {
	client *scaleset.Client
	gone   bool
}

func (r *registry) Get(string) (*scaleset.Client, bool) { return r.client, !r.gone }

// holder names the pool that holds one scale set: NAMESPACE/POOL CONNECTION UID.
type holder struct {
	who string
	set int64
}

func (h *holder) Holds(pool, connection types.NamespacedName, uid types.UID, setID int64) bool {
	return setID == h.set && fmt.Sprint(pool, " ", connection.Name, " ", uid) == h.who
}

func (h *holder) HoldsAny(types.NamespacedName) bool { return h.set != 0 }

// allowing is a Policies that allows everything.
type allowing struct{}

func (allowing) Permit(context.Context, *v1alpha1.RunnerPool, string, []byte, podspec.Network) (policy.Template, error) {
	return policy.Template{}, nil
}

// denying is a Policies that denies everything.
type denying struct{}

func (denying) Permit(context.Context, *v1alpha1.RunnerPool, string, []byte, podspec.Network) (policy.Template, error) {
	return policy.Template{Denials: []v1alpha1.PolicyFinding{{Message: "no", Rule: v1alpha1.RuleReference{Policy: "ClusterRunnerPolicy/guard"}}}}, nil
}

func newBench(t *testing.T) *bench {
	t.Helper()
	return newBenchOn(t, githubsim.Options{})
}

// newBenchOn returns a bench with GitHub options.
func newBenchOn(t *testing.T, o githubsim.Options) *bench {
	t.Helper()
	sim, err := githubsim.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	sim.AddToken("t")
	sim.AddOrg("acme")
	gh, err := scaleset.NewClient(github.Credentials{ConfigURL: sim.ConfigURL("acme"), Token: "t"}, github.Options{})
	if err != nil {
		t.Fatal(err)
	}
	set, err := gh.Create(t.Context(), scaleset.Set{Name: "linux", GroupID: 1, Labels: []string{"linux"}})
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	b := &bench{t: t, github: sim, set: set, now: time.Unix(1_000_000, 0)}
	revision := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "linux-1"},
		Data:       runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"runner","image":"r"}]}}`)},
	}
	runner := &v1alpha1.Runner{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ci", Name: "linux-a", UID: "u1", Finalizers: []string{v1alpha1.RunnerFinalizer}, CreationTimestamp: metav1.Time{Time: b.now},
		},
		Spec: v1alpha1.RunnerSpec{
			PoolRef: v1alpha1.LocalObjectReference{Name: "linux"}, ConnectionRef: v1alpha1.ConnectionReference{Name: "acme"},
			ScaleSetID: set.ID, Revision: "linux-1",
		},
	}
	pool := &v1alpha1.RunnerPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "linux", UID: testPoolUID},
		Spec:       v1alpha1.RunnerPoolSpec{ConnectionRef: v1alpha1.ConnectionReference{Name: "acme"}},
	}
	runner.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pool, v1alpha1.GroupVersion.WithKind("RunnerPool"))}
	recorder := events.NewFakeRecorder(20)
	b.events = recorder.Events
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(revision, runner, pool, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ci", UID: "n1"}}).WithStatusSubresource(runner)
	for _, i := range kube.Indexes(testCluster) {
		builder.WithIndex(i.Object, i.Field, i.Values)
	}
	c := builder.Build()
	b.Reconciler = &Reconciler{
		Reporter: kube.Reporter{Client: c, Events: recorder, Quiet: true}, Live: c,
		Clients: &registry{client: gh}, Sets: &holder{"ci/linux acme " + testPoolUID, set.ID}, Cluster: testCluster, Memory: NewMemory(), Policies: allowing{}, Watches: restarts{}, Now: func() time.Time { return b.now },
	}
	return b
}

func (b *bench) reconcile() ctrl.Result {
	b.t.Helper()
	result, err := b.Reconcile(b.t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "ci", Name: "linux-a"}})
	if err != nil {
		b.t.Fatal(err)
	}
	return result
}

// passes reconciles n times, advancing the clock before each pass.
func (b *bench) passes(n int, after time.Duration) {
	b.t.Helper()
	for range n {
		b.now = b.now.Add(after)
		b.reconcile()
	}
}

// runner returns the Runner; nil if it is gone.
func (b *bench) runner() *v1alpha1.Runner {
	b.t.Helper()
	r := &v1alpha1.Runner{}
	return get(b, r, "linux-a")
}

func get[T client.Object](b *bench, obj T, name string) T {
	b.t.Helper()
	var none T
	err := b.Client.Get(b.t.Context(), client.ObjectKey{Namespace: "ci", Name: name}, obj)
	if apierrors.IsNotFound(err) {
		return none
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return obj
}

func (b *bench) pool() *v1alpha1.RunnerPool { return get(b, &v1alpha1.RunnerPool{}, "linux") }

func (b *bench) pod() *corev1.Pod { return get(b, &corev1.Pod{}, "linux-a") }

func (b *bench) delete() {
	b.t.Helper()
	if err := b.Client.Delete(b.t.Context(), b.runner()); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) registered() int { return len(b.github.Report().Runners) }

func TestARunnerIsRegisteredAndGetsItsPod(t *testing.T) {
	b := newBench(t)
	b.reconcile()
	r, secret := b.runner(), get(b, &corev1.Secret{}, "linux-a-jit")
	if r.Status.RunnerID == 0 || string(secret.Data[podspec.RunnerIDKey]) != strconv.FormatInt(r.Status.RunnerID, 10) || len(secret.Data[podspec.JITKey]) == 0 {
		t.Errorf("runner %d, secret %v", r.Status.RunnerID, secret.Data)
	}
	if !metav1.IsControlledBy(secret, r) || !podspec.BelongsTo(b.pod(), r) {
		t.Error("the Secret and the Pod don't belong to the Runner")
	}
	if r.Status.State != v1alpha1.RunnerPending || !conditions.IsReconciling(r) {
		t.Errorf("state %s, conditions %+v", r.Status.State, r.Status.Conditions)
	}
}

func TestARegistrationWhoseAnswerWasLostIsMadeAgain(t *testing.T) {
	b := newBench(t)
	b.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointJITConfig, Times: 1, DropAnswer: true, Status: 502})
	_, _ = b.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "ci", Name: "linux-a"}})
	if b.registered() != 1 {
		t.Fatalf("%d registrations after the lost answer", b.registered())
	}
	b.reconcile()
	if s := b.runner().Status; s.Cause != "" || s.Reason != "registering again: the configuration of the first registration was lost" {
		t.Errorf("nothing is amiss: %+v", s)
	}
	b.reconcile()
	if b.registered() != 1 || b.pod() == nil {
		t.Errorf("%d registrations, pod %v", b.registered(), b.pod())
	}
}

// A controller that restarts while a pool has no runners numbers them from 1 again. An earlier runner's Secret may exist
// indefinitely.
func TestARunnerWhoseSecretIsAnothers(t *testing.T) {
	former := &v1alpha1.Runner{ObjectMeta: metav1.ObjectMeta{Name: "linux-a", UID: "former"}}
	for name, c := range map[string]struct {
		owner *v1alpha1.Runner
		knows bool // this process stored Secrets for the pool
		calls int
	}{
		"of a former runner": {owner: former}, "of nobody": {}, "noticed late": {owner: former, knows: true, calls: 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			secret := &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "linux-a-jit"},
				Data:       map[string][]byte{podspec.RunnerIDKey: []byte("7")},
			}
			if c.owner != nil {
				if err := controllerutil.SetControllerReference(c.owner, secret, b.Client.Scheme()); err != nil {
					t.Fatal(err)
				}
			}
			if err := b.Client.Create(t.Context(), secret); err != nil {
				t.Fatal(err)
			}
			if c.knows {
				b.Memory.setStoredSecret(client.ObjectKey{Namespace: "ci", Name: "linux"})
			}
			b.reconcile()
			if s := b.runner().Status; s.State != v1alpha1.RunnerFailed || s.Cause != v1alpha1.CauseRemoved || s.Exit != nil {
				t.Errorf("%+v", s)
			}
			if calls := b.github.Report().Requests[githubsim.EndpointJITConfig]; calls != c.calls {
				t.Errorf("%d calls", calls)
			}
			failures := b.Memory.SinceLastPass(client.ObjectKey{Namespace: "ci", Name: "linux"}).Failures
			if len(failures) != 1 || !failures[0].NameTaken {
				t.Errorf("%+v", failures)
			}
			b.reconcile() // it is being deleted
			if b.runner() != nil || b.registered() != 0 {
				t.Errorf("runner %v, %d registrations", b.runner(), b.registered())
			}
		})
	}
}

// Another controller's finalizer keeps the object.
func TestARunnerThatAnotherFinalizerKeeps(t *testing.T) {
	b := newBench(t)
	r := b.runner()
	r.Finalizers = append(r.Finalizers, "example.com/hold")
	if err := b.Client.Update(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	b.reconcile()
	b.setPod(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: b.now}}})
	b.reconcile()
	b.delete()
	for range 3 {
		b.reconcile()
	}
	r = b.runner()
	if !r.IsReleased() || r.Status.State != v1alpha1.RunnerFinished || b.pod() != nil || b.registered() != 0 {
		t.Errorf("finalizers %v, %+v, pod %v, %d registrations", r.Finalizers, r.Status, b.pod(), b.registered())
	}
	if ready := conditions.Get(r, v1alpha1.ReadyCondition); ready.Status != metav1.ConditionFalse || !strings.Contains(ready.Message, "example.com/hold") {
		t.Errorf("%+v", ready)
	}
	b.reconcile()
	if known := b.Memory.runners[client.ObjectKeyFromObject(r)]; known != nil {
		t.Errorf("it is remembered: %+v", known)
	}
}

func TestLostStatusIsReadBackFromTheSecret(t *testing.T) {
	b := newBench(t)
	b.reconcile()
	want := b.runner().Status.RunnerID
	for _, podToo := range []bool{false, true} {
		if podToo {
			if err := b.Client.Delete(t.Context(), b.pod()); err != nil {
				t.Fatal(err)
			}
		}
		r := b.runner()
		r.Status = v1alpha1.RunnerStatus{}
		b.Memory = NewMemory()
		if err := b.Client.Status().Update(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		b.reconcile()
		if got := b.runner().Status.RunnerID; got != want || b.registered() != 1 || b.pod() == nil {
			t.Errorf("pod lost %v: runner %d, want %d; %d registrations", podToo, got, want, b.registered())
		}
	}
}

func TestADeletedRunnerIsDeregisteredBeforeItsPodGoes(t *testing.T) {
	b := newBench(t)
	b.reconcile()
	b.setPod(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: b.now}}})
	b.delete()
	b.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointDeleteAgent, Times: 1, Alter: githubsim.AlterJobStillRunning})
	if b.reconcile().RequeueAfter == 0 || b.pod() == nil || b.registered() != 1 {
		t.Fatal("a busy runner was touched")
	}
	b.reconcile()
	if b.registered() != 0 || b.pod() != nil {
		t.Errorf("%d registrations, pod %v", b.registered(), b.pod())
	}
	b.reconcile()
	if r := b.runner(); r != nil {
		t.Errorf("the runner is still there: %+v", r.Status)
	}
}

// If a runner was ended from outside, GitHub fails its job after a while and keeps the registration, because the runner
// never reported the end of the job.
func TestARunnerThatEndedBeforeItsJobIsDeregisteredAfterIt(t *testing.T) {
	b := newBench(t)
	b.reconcile()
	b.setPod(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 0, FinishedAt: metav1.Time{Time: b.now}}})
	b.delete()
	b.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointDeleteAgent, Times: 1, Alter: githubsim.AlterJobStillRunning})
	b.reconcile()
	recorder := &Recorder{Client: b.Client, Namespace: "ci", Memory: b.Memory}
	events := []scaleset.JobEvent{{Type: scaleset.JobCompleted, JobID: "j", RunnerName: "linux-a", Result: "failed", At: b.now}}
	if err := recorder.RecordJobs(t.Context(), events); err != nil {
		t.Fatal(err)
	}
	b.reconcile()
	if b.registered() != 0 || b.runner() != nil {
		t.Errorf("%d registrations, runner %+v", b.registered(), b.runner())
	}
}

// A runner that died during its job does not count as having one when that job is over. The pool counts the runner as
// finished, too.
func TestARunnerThatDiedInItsJobIsFinishedAfterIt(t *testing.T) {
	b := newBench(t)
	b.reconcile()
	recorder := &Recorder{Client: b.Client, Namespace: "ci", Memory: b.Memory}
	event := func(kind scaleset.EventType, result string) {
		if err := recorder.RecordJobs(t.Context(), []scaleset.JobEvent{{Type: kind, JobID: "j", RunnerName: "linux-a", Result: result, At: b.now}}); err != nil {
			t.Fatal(err)
		}
	}
	event(scaleset.JobStarted, "")
	b.setPod(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137, FinishedAt: metav1.Time{Time: b.now}}})
	b.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointDeleteAgent, Times: 4, Alter: githubsim.AlterJobStillRunning})
	says := func(state v1alpha1.RunnerState, text string) {
		t.Helper()
		b.reconcile()
		b.reconcile()
		s := b.runner().Status
		if got := s.Reason + "; " + conditions.GetMessage(b.runner(), v1alpha1.ReadyCondition); s.State != state || got != text {
			t.Errorf("%s: %s", s.State, got)
		}
	}
	says(v1alpha1.RunnerFailed, "OOMKilled (exit code 137), with a job: GitHub will fail it; its container exited; waiting for GitHub to fail its job")
	event(scaleset.JobCompleted, "failed")
	says(v1alpha1.RunnerFinished, "job failed; its job finished; waiting for GitHub to remove its registration")
}

// A pool that was held back after failures continues after one job, however short.
func TestARunnerThatIsDoneTellsThatItWorked(t *testing.T) {
	b := newBench(t)
	b.reconcile()
	recorder := &Recorder{Client: b.Client, Namespace: "ci", Memory: b.Memory}
	began := b.now.Truncate(time.Second)
	for _, e := range []scaleset.JobEvent{
		{Type: scaleset.JobStarted, JobID: "j", RunnerName: "linux-a", At: began},
		{Type: scaleset.JobCompleted, JobID: "j", RunnerName: "linux-a", Result: "succeeded", At: began},
	} {
		if err := recorder.RecordJobs(t.Context(), []scaleset.JobEvent{e}); err != nil {
			t.Fatal(err)
		}
	}
	revision := b.runner().Spec.Revision
	b.reconcile()
	if r := b.runner(); r != nil && r.DeletionTimestamp.IsZero() {
		t.Fatalf("not done: %+v", r.Status)
	}
	if got := b.Memory.SinceLastPass(client.ObjectKey{Namespace: "ci", Name: "linux"}).Worked[revision]; !got.Began.Equal(began) || got.Runner != "linux-a" {
		t.Errorf("a job began at %s, told is %+v", began, got)
	}
}

func TestARunnerWithoutItsConnectionIsGivenUpAfterABound(t *testing.T) {
	b := newBench(t)
	b.reconcile()
	b.setPod(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: b.now}}})
	b.Clients.(*registry).gone = true
	b.delete()
	connection := &v1alpha1.GitHubConnection{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "acme"}}
	if err := b.Client.Create(t.Context(), connection); err != nil {
		t.Fatal(err)
	}
	b.now = b.now.Add(orphanAfter * 10)
	b.reconcile()
	if b.pod() == nil {
		t.Fatal("given up although the connection is there, as after a restart")
	}
	if err := b.Client.Delete(t.Context(), connection); err != nil {
		t.Fatal(err)
	}
	b.now = b.runner().DeletionTimestamp.Time
	if result := b.reconcile(); result.RequeueAfter == 0 || b.runner() == nil {
		t.Fatal("given up at once")
	}
	b.now = b.runner().DeletionTimestamp.Add(orphanAfter)
	recorder := &Recorder{Client: b.Client, Namespace: "ci", Memory: b.Memory}
	started := scaleset.JobEvent{Type: scaleset.JobStarted, JobID: "j", RunnerName: "linux-a", At: b.now}
	if err := recorder.RecordJobs(t.Context(), []scaleset.JobEvent{started}); err != nil {
		t.Fatal(err)
	}
	b.reconcile()
	if b.pod() == nil {
		t.Fatal("a runner with a job was ended")
	}
	b.setPod(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.Time{Time: b.now}}})
	b.reconcile()
	if b.runner() != nil {
		t.Error("not given up")
	}
	if len(b.events) == 0 {
		t.Error("nobody was told")
	}
}

// Without consent the session is closed, so a job that began just before stays unreported.
func TestARunnerThatMayHaveAJobIsWaitedForWithoutConsent(t *testing.T) {
	for name, restarts := range map[string]bool{"GitHub told of its job": false, "and nobody remembers": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			granted := &v1alpha1.GitHubConnection{ObjectMeta: metav1.ObjectMeta{Namespace: "platform", Name: "acme"}, Spec: v1alpha1.GitHubConnectionSpec{AllowedNamespaces: []string{"ci"}}}
			b.create(granted)
			b.Access = &connections.Access{Connections: b.Client, Now: b.Now}
			r, p := b.runner(), b.pool()
			r.Spec.ConnectionRef.Namespace, p.Spec.ConnectionRef.Namespace = "platform", "platform"
			b.update(r)
			b.update(p)
			b.reconcile()
			b.setPod(running(b.now))
			b.reconcile()
			b.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointDeleteAgent, Alter: githubsim.AlterJobStillRunning})
			b.delete()
			b.now = b.runner().DeletionTimestamp.Time
			b.reconcile()
			granted.Spec.AllowedNamespaces = nil
			b.update(granted)
			wait := 10 * jobUnknownAfter
			if restarts {
				b.Access, b.Memory = &connections.Access{Connections: b.Client, Now: b.Now}, NewMemory()
				wait = jobUnknownAfter - time.Second
			}
			b.now = b.now.Add(wait)
			b.reconcile()
			if b.pod() == nil {
				t.Fatal("its pod was ended")
			}
			b.setPod(ended(b.now))
			b.reconcile()
			b.reconcile()
			if b.runner() != nil {
				t.Errorf("not given up: %+v", b.runner().Status)
			}
		})
	}
}

func TestARunnerThatCannotRegisterIsGivenUpAtItsDeadline(t *testing.T) {
	b := newBench(t)
	b.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointJITConfig, Status: 500})
	if after := b.reconcile().RequeueAfter; after == 0 || after > awayMax {
		t.Errorf("tried again after %s", after)
	}
	b.now = b.now.Add(v1alpha1.DefaultStartupDeadline)
	b.reconcile()
	if r := b.runner(); r.DeletionTimestamp.IsZero() || r.Status.State != v1alpha1.RunnerFailed {
		t.Errorf("not given up: %+v", r.Status)
	}
}

// The pool reports why it has no session. The runner reports what it waits for, also when it is given up.
func TestARunnerSaysThatItWaitsForASession(t *testing.T) {
	b := newBench(t)
	b.Sets = &holder{}
	const text = `RunnerPool "linux" has no message session yet`
	b.reconcile()
	if s := b.runner().Status; s.State != v1alpha1.RunnerPending || s.Reason != text || s.Cause != "" {
		t.Errorf("it waits: %+v", s)
	}
	b.now = b.now.Add(v1alpha1.DefaultStartupDeadline)
	b.reconcile()
	if s := b.runner().Status; s.State != v1alpha1.RunnerFailed || !strings.HasSuffix(s.Reason, ": "+text) {
		t.Errorf("it is given up: %+v", s)
	}
}

// An exit without an error and a completed job do not prove that the runner reported the end. A runner that was asked to
// stop during its job, for example by an eviction, ends in the same way and stays registered.
func TestAFinishedRunnerEndsItself(t *testing.T) {
	for result, calls := range map[string]int{"succeeded": 0, "failed": 1, "canceled": 1} {
		t.Run(result, func(t *testing.T) {
			b := newBench(t)
			b.reconcile()
			b.setPod(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 0, FinishedAt: metav1.Time{Time: b.now}}})
			b.reconcile()
			if r := b.runner(); r == nil || !r.DeletionTimestamp.IsZero() {
				t.Fatal("ended before its job's completion was seen")
			}
			recorder := &Recorder{Client: b.Client, Namespace: "ci", Memory: b.Memory}
			events := []scaleset.JobEvent{{Type: scaleset.JobCompleted, JobID: "j", RunnerName: "linux-a", Result: result, At: b.now}}
			if err := recorder.RecordJobs(t.Context(), events); err != nil {
				t.Fatal(err)
			}
			b.reconcile()
			if b.runner() != nil || b.pod() != nil {
				t.Errorf("not ended: %+v", b.runner())
			}
			if n := b.github.Report().Requests[githubsim.EndpointDeleteAgent]; n != calls {
				t.Errorf("GitHub was asked %d times to forget it, want %d", n, calls)
			}
		})
	}
}

func TestTheJobIsOnTheRunnerAndItsPod(t *testing.T) {
	b := newBench(t)
	b.reconcile()
	recorder := &Recorder{Client: b.Client, Namespace: "ci", Memory: b.Memory}
	event := scaleset.JobEvent{Type: scaleset.JobStarted, JobID: "j", Repository: "acme/app", RunID: 9, Name: "build", RunnerName: "linux-a", At: b.now}
	gone := event
	gone.RunnerName = "not-there"
	if err := recorder.RecordJobs(t.Context(), []scaleset.JobEvent{event, gone}); err != nil {
		t.Fatal(err)
	}
	b.reconcile()
	r, pod := b.runner(), b.pod()
	if r.Status.State != v1alpha1.RunnerBusy || r.Status.Job.Repository != "acme/app" {
		t.Errorf("status %+v", r.Status)
	}
	if pod.Labels[v1alpha1.JobRepositoryLabel] != "acme_app" || pod.Labels[v1alpha1.JobRunIDLabel] != "9" || pod.Annotations[v1alpha1.JobAnnotation] == "" {
		t.Errorf("labels %v, annotations %v", pod.Labels, pod.Annotations)
	}
	version := r.ResourceVersion
	if err := recorder.RecordJobs(t.Context(), []scaleset.JobEvent{event}); err != nil {
		t.Fatal(err)
	}
	if b.runner().ResourceVersion != version {
		t.Error("a repeated event wrote again")
	}
}

// setPod sets the state of the runner's container.
func (b *bench) setPod(state corev1.ContainerState) {
	b.t.Helper()
	pod := b.pod()
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: v1alpha1.RunnerContainerName, State: state}}
	if err := b.Client.Status().Update(context.Background(), pod); err != nil {
		b.t.Fatal(err)
	}
}

func TestAContainerMayGoOnForAMomentAfterItsJob(t *testing.T) {
	b := newBench(t)
	b.reconcile()
	b.setPod(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: b.now}}})
	recorder := &Recorder{Client: b.Client, Namespace: "ci", Memory: b.Memory}
	events := []scaleset.JobEvent{{Type: scaleset.JobCompleted, JobID: "j", RunnerName: "linux-a", Result: "canceled", At: b.now}}
	if err := recorder.RecordJobs(t.Context(), events); err != nil {
		t.Fatal(err)
	}
	b.now = b.runner().DeletionTimestamp.Time
	if after := b.reconcile().RequeueAfter; after != lingering || b.pod() == nil {
		t.Fatalf("looks again in %s", after)
	}
	b.now = b.now.Add(lingering)
	b.reconcile()
	if b.registered() != 0 || b.pod() != nil {
		t.Errorf("it hangs, and was not ended: %d registrations", b.registered())
	}
}

// A pod on a lost node is never removed, because no kubelet confirms that it ended.
func TestAPodThatDoesNotGoIsLetGo(t *testing.T) {
	b := newBench(t)
	b.reconcile()
	b.setPod(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: b.now}}})
	pod := b.pod()
	pod.Finalizers = []string{"test/kept"}
	if err := b.Client.Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	b.delete()
	b.reconcile()
	b.now = b.pod().DeletionTimestamp.Add(podGone)
	b.reconcile()
	if b.runner() == nil {
		t.Fatal("let go too early")
	}
	b.now = b.now.Add(time.Second)
	b.reconcile()
	if b.runner() != nil || len(b.events) == 0 {
		t.Error("the runner is held by a pod that never goes, or nobody was told")
	}
}

func TestAJobWhoseCompletionWasLostIsOverWhenGitHubForgotTheRunner(t *testing.T) {
	b := newBench(t)
	b.reconcile()
	b.setPod(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: b.now}}})
	recorder := &Recorder{Client: b.Client, Namespace: "ci", Memory: b.Memory}
	started := scaleset.JobEvent{Type: scaleset.JobStarted, JobID: "j", RunnerName: "linux-a", At: b.now}
	if err := recorder.RecordJobs(t.Context(), []scaleset.JobEvent{started}); err != nil {
		t.Fatal(err)
	}
	key := client.ObjectKey{Namespace: "ci", Name: "linux-a"}
	b.Memory.Suspect(key, false, b.now)
	b.reconcile()
	if r := b.runner(); r.Status.State != v1alpha1.RunnerBusy || !r.DeletionTimestamp.IsZero() {
		t.Fatalf("GitHub knows it: %+v", r.Status)
	}
	gh, _ := b.Clients.Get("")
	if err := gh.RemoveRunner(t.Context(), b.runner().Status.RunnerID); err != nil {
		t.Fatal(err)
	}
	b.Memory.Suspect(key, false, b.now)
	b.reconcile()
	if r := b.runner(); !r.DeletionTimestamp.IsZero() {
		t.Fatal("asked twice within a minute")
	}
	b.Memory.Suspect(key, false, b.now.Add(SuspectInterval))
	b.passes(10, absentLook)
	if r := b.runner(); r.Status.State != v1alpha1.RunnerBusy || !r.DeletionTimestamp.IsZero() {
		t.Fatalf("it may have its job yet: %+v", r.Status)
	}
	b.passes(1, absentLook)
	if r := b.runner(); r.DeletionTimestamp.IsZero() || r.Status.State != v1alpha1.RunnerFinished {
		t.Errorf("not ended: %+v", r.Status)
	}
}

func TestAnIdleRunnerThatGitHubForgotFailed(t *testing.T) {
	b := newBench(t)
	b.reconcile()
	b.setPod(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: b.now}}})
	gh, _ := b.Clients.Get("")
	if err := gh.RemoveRunner(t.Context(), b.runner().Status.RunnerID); err != nil {
		t.Fatal(err)
	}
	b.Memory.Suspect(client.ObjectKey{Namespace: "ci", Name: "linux-a"}, false, b.now)
	b.reconcile()
	if r := b.runner(); !r.DeletionTimestamp.IsZero() {
		t.Fatal("ended when GitHub didn't know it once")
	}
	b.passes(1, goneAfter)
	b.reconcile()
	if b.pod() != nil {
		t.Error("its pod is still there")
	}
	b.reconcile()
	if r := b.runner(); r != nil {
		t.Errorf("not ended: %+v", r.Status)
	}
}

// GitHub's counts are sometimes wrong, so each missing runner is checked before it ends.
func TestARunnerThatIsDoubtedIsLookedUpBeforeItEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		age       time.Duration
		wasOnline bool
		looks     int
		want      v1alpha1.RunnerCause // empty while it keeps running
	}{
		"one that may yet connect":        {v1alpha1.DefaultConnectDeadline - time.Second, false, 1, ""},
		"one that never connected":        {v1alpha1.DefaultConnectDeadline, false, 1, v1alpha1.CauseNeverConnected},
		"one that was connected":          {v1alpha1.DefaultConnectDeadline, true, 1, ""},
		"one that still isn't any more":   {v1alpha1.DefaultConnectDeadline, true, 2, v1alpha1.CauseRemoved},
		"one that is asked for too often": {v1alpha1.DefaultConnectDeadline, true, 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.reconcile()
			b.setPod(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: b.now}}})
			b.now = b.now.Add(tc.age)
			for range tc.looks {
				b.Memory.Suspect(client.ObjectKey{Namespace: "ci", Name: "linux-a"}, tc.wasOnline, b.now)
				b.Memory.Suspect(client.ObjectKey{Namespace: "ci", Name: "linux-a"}, tc.wasOnline, b.now.Add(time.Second))
				b.reconcile()
				b.now = b.now.Add(SuspectInterval)
			}
			var got v1alpha1.RunnerCause
			for _, f := range b.Memory.SinceLastPass(client.ObjectKey{Namespace: "ci", Name: "linux"}).Failures {
				got = f.Cause
			}
			if isEnding := !b.runner().DeletionTimestamp.IsZero(); got != tc.want || isEnding != (tc.want != "") {
				t.Errorf("failed for %q, ending: %v", got, isEnding)
			}
		})
	}
}

// Otherwise only the pool's next suspicion, a minute later, would request another check.
func TestARunnerThatIsDoubtedIsLookedUpUntilGitHubAnswers(t *testing.T) {
	b := newBench(t)
	b.reconcile()
	b.setPod(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: b.now}}})
	b.now = b.now.Add(v1alpha1.DefaultConnectDeadline)
	b.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointGetAgent, Status: 503, Times: 2})
	b.Memory.Suspect(client.ObjectKey{Namespace: "ci", Name: "linux-a"}, false, b.now)
	for range 2 {
		if b.reconcile(); b.runner().Status.State != v1alpha1.RunnerIdle || !b.runner().DeletionTimestamp.IsZero() {
			t.Fatalf("while GitHub doesn't answer: %+v", b.runner().Status)
		}
	}
	if b.reconcile(); b.runner().DeletionTimestamp.IsZero() {
		t.Error("it isn't ended")
	}
	if n := len(b.Memory.SinceLastPass(client.ObjectKey{Namespace: "ci", Name: "linux"}).Failures); n != 1 {
		t.Errorf("%d failures", n)
	}
}

func TestWhoIsFoundOnlineIsDoubtedLessAndLess(t *testing.T) {
	m, key, now := NewMemory(), client.ObjectKey{Namespace: "ci", Name: "linux-a"}, time.Unix(0, 0)
	looks := 0
	for range 3600 { // seconds
		now = now.Add(time.Second)
		if m.Suspect(key, false, now); m.popSuspicion(key) {
			m.looked(key, &registered{online: true})
			looks++
		}
	}
	if looks > 17 {
		t.Errorf("%d looks in an hour", looks)
	}
	if before := m.looked(key, &registered{offline: true}); !before.wasOnline {
		t.Error("it isn't known that it was online")
	}
	if m.Suspect(key, false, now.Add(SuspectInterval)); !m.popSuspicion(key) {
		t.Error("once it is offline, the look that proves it doesn't come soon")
	}
}

// GitHub reports how many runners are missing, but not which. Healthy runners must not prevent the missing ones from being
// found.
func TestEachSuspectHasItsTurn(t *testing.T) {
	for _, count := range []int{2, 9, 35} {
		var names []string
		for i := range count {
			names = append(names, fmt.Sprintf("linux-%02d", i))
		}
		m, now, minutes, looks := NewMemory(), time.Unix(0, 0), 0, 0
		lost := client.ObjectKey{Namespace: "ci", Name: names[count-1]}
		for ; !m.popSuspicion(lost) && minutes < 60; minutes++ {
			now = now.Add(time.Minute)
			for range 3 { // passes of the pool
				m.SuspectSome("ci", poolstatus.Suspects{Names: names, Missing: 1}, nil, now)
				for _, name := range names[:count-1] {
					if key := (client.ObjectKey{Namespace: "ci", Name: name}); m.popSuspicion(key) {
						m.looked(key, &registered{online: true})
						looks++
					}
				}
			}
		}
		if want := (count + suspectLeast - 1) / suspectLeast; minutes != want || looks > want*suspectLeast {
			t.Errorf("of %d, the one that is lost was looked at after %d minutes and %d other looks", count, minutes, looks)
		}
	}
}

// A policy changed after the pool created the runner.
func TestAPodThatPoliciesDenyIsNotCreated(t *testing.T) {
	b := newBench(t)
	b.Policies = denying{}
	b.reconcile()
	if r := b.runner(); b.pod() != nil || r.Status.Cause != v1alpha1.CauseRefused || r.Status.Reason != "ClusterRunnerPolicy/guard denies the pod: no" {
		t.Errorf("pod %v, status %+v", b.pod(), r.Status)
	}
	b.Policies = allowing{}
	b.reconcile()
	if b.pod() == nil {
		t.Error("no pod although it is allowed by now")
	}
}

// GitHub still reports the job as running until its runner has been gone for a while.
func TestSomebodyMayEndARunnerWithItsJob(t *testing.T) {
	b := newBench(t)
	b.reconcile()
	b.setPod(corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: b.now}}})
	recorder := &Recorder{Client: b.Client, Namespace: "ci", Memory: b.Memory}
	started := scaleset.JobEvent{Type: scaleset.JobStarted, JobID: "j", Repository: "acme/app", RunnerName: "linux-a", At: b.now}
	if err := recorder.RecordJobs(t.Context(), []scaleset.JobEvent{started}); err != nil {
		t.Fatal(err)
	}
	b.reconcile()
	r := b.runner()
	r.Annotations = map[string]string{v1alpha1.TerminateAnnotation: "mines coins"}
	if err := b.Client.Update(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	b.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointDeleteAgent, Alter: githubsim.AlterJobStillRunning, Times: 1})
	for range 4 {
		b.reconcile()
	}
	if b.pod() != nil {
		t.Error("its pod is still there")
	}
	if e := <-b.events; !strings.Contains(e, "mines coins") || !strings.Contains(e, "acme/app") {
		t.Errorf("event %q", e)
	}
}

// Anyone who can delete and create ControllerRevisions may replace a template that policies judged.
func TestAPodIsMadeOfNoOtherTemplateThanItsRunner(t *testing.T) {
	for name, replaced := range map[string]bool{"the template it was made for": false, "another of the same name": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			revision := get(b, &appsv1.ControllerRevision{}, "linux-1")
			r := b.runner()
			var err error
			if r.Spec.TemplateDigest, err = podspec.Digest(revision.Data.Raw); err != nil {
				t.Fatal(err)
			}
			b.update(r)
			if replaced {
				revision.Data.Raw = []byte(`{"spec":{"containers":[{"name":"runner","image":"evil"}]}}`)
				b.update(revision)
			}
			b.reconcile()
			if made := b.pod() != nil; made == replaced {
				t.Errorf("a pod was made: %t; %+v", made, b.runner().Status)
			}
			if cause := b.runner().Status.Cause; replaced && cause != v1alpha1.CauseRefused {
				t.Errorf("cause %s", cause)
			}
		})
	}
}

// failing is a Policies that cannot be evaluated.
type failing struct{}

func (failing) Permit(context.Context, *v1alpha1.RunnerPool, string, []byte, podspec.Network) (policy.Template, error) {
	return policy.Template{Failures: []policy.Failure{{Kind: policy.NotLoaded}}}, nil
}

func TestATemplateThatWasDeniedStaysSoUnderAnyName(t *testing.T) {
	b := newBench(t)
	b.Policies = failing{}
	digest, err := podspec.Digest(get(b, &appsv1.ControllerRevision{}, "linux-1").Data.Raw)
	if err != nil {
		t.Fatal(err)
	}
	p := b.pool()
	p.Status.Policy = &v1alpha1.TemplateVerdict{Revision: "linux-0", TemplateDigest: digest, Denials: []v1alpha1.PolicyFinding{{Message: "no"}}}
	b.update(p)
	b.reconcile()
	if b.pod() != nil {
		t.Error("its pod was made")
	}
}

// A reclaimed or drained node soon disappears. Its taints are kept in the status of the runner that ended there.
func TestTheTaintsOfTheNodeStayWithARunnerThatFailed(t *testing.T) {
	for name, tc := range map[string]struct {
		code  int32
		nodes bool
		want  *v1alpha1.RunnerExit
	}{
		"an error":                   {137, true, &v1alpha1.RunnerExit{Actor: v1alpha1.ActorRunner, Code: 137, Node: "spot-1", Taints: []string{"karpenter.sh/disrupted:NoSchedule", "pool=ci:NoSchedule"}}},
		"an error, the node is gone": {137, false, &v1alpha1.RunnerExit{Actor: v1alpha1.ActorRunner, Code: 137, Node: "spot-1"}},
		"no error":                   {0, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.reconcile()
			if tc.nodes {
				node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "spot-1"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{
					{Key: "karpenter.sh/disrupted", Effect: corev1.TaintEffectNoSchedule}, {Key: "pool", Value: "ci", Effect: corev1.TaintEffectNoSchedule},
				}}}
				if err := b.Client.Create(t.Context(), node); err != nil {
					t.Fatal(err)
				}
			}
			pod := b.pod()
			pod.Spec.NodeName = "spot-1"
			b.update(pod)
			b.setPod(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: tc.code, FinishedAt: metav1.Time{Time: b.now}}})
			b.reconcile()
			if diff := cmp.Diff(tc.want, b.runner().Status.Exit); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// noting is a Policies that allows everything and records the network that it was asked about.
type noting struct{ asked *podspec.Network }

func (n noting) Permit(_ context.Context, _ *v1alpha1.RunnerPool, _ string, _ []byte, of podspec.Network) (policy.Template, error) {
	*n.asked = of
	return policy.Template{}, nil
}

func TestThePodOverItsConnectionIsTheOneThatPoliciesSee(t *testing.T) {
	b := newBench(t)
	asked := podspec.Network{}
	b.Policies = noting{&asked}
	conn := &v1alpha1.GitHubConnection{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "acme"}}
	conn.Spec.CA, conn.Spec.Proxy = &v1alpha1.ConnectionCA{}, &v1alpha1.ConnectionProxy{Scope: v1alpha1.ProxyControllerAndRunners}
	if err := b.Client.Create(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	b.reconcile()
	if want := (podspec.Network{Proxies: true, CA: true}); asked != want {
		t.Errorf("asked about %+v", asked)
	}
	if spec := b.pod().Spec; len(spec.Volumes) != 1 || len(spec.Containers[0].VolumeMounts) != 1 || len(spec.Containers[0].Env) != 10 {
		t.Errorf("pod %+v", spec)
	}
}

// While no session was open, for example after a crash, a runner may have had an unreported job. GitHub removes an
// ephemeral runner after its job, and only then. The event reports that, and the pool records no false failure.
func TestARunnerWhoseJobWasMissedIsNotCalledFailed(t *testing.T) {
	missed := "Normal Finished ended; Corral had no open session and missed the job's completion. GitHub no longer has the runner, as after a job"
	for name, tc := range map[string]struct {
		forgotten, away bool
		later           time.Duration
		event           string
		failures        int
	}{
		"GitHub has forgotten it":  {forgotten: true, event: missed},
		"GitHub still has it":      {event: "Normal Failed Crash: ended without a job", failures: 1},
		"GitHub can't be asked":    {away: true},
		"GitHub was away for long": {away: true, forgotten: true},
		"GitHub never says":        {away: true, later: poolstatus.JobLost, event: "Normal Failed Crash: ended without a job", failures: 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.reconcile()
			gh, _ := b.Clients.Get("")
			if tc.forgotten {
				if err := gh.RemoveRunner(t.Context(), b.runner().Status.RunnerID); err != nil {
					t.Fatal(err)
				}
			}
			b.setPod(ended(b.now))
			if tc.away {
				b.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointGetAgent, Status: http.StatusServiceUnavailable})
			}
			b.reconcile()
			b.now = b.now.Add(2*poolstatus.Settle + tc.later)
			_, _ = b.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "ci", Name: "linux-a"}}) // it may have to retry
			var told []string
			for len(b.events) > 0 {
				if e := <-b.events; strings.Contains(e, "Failed") || strings.Contains(e, "Finished ended") {
					told = append(told, e)
				}
			}
			var want []string
			if tc.event != "" {
				want = []string{tc.event}
			}
			if diff := cmp.Diff(want, told); diff != "" {
				t.Errorf("told (-want +got):\n%s", diff)
			}
			if f := b.Memory.SinceLastPass(client.ObjectKey{Namespace: "ci", Name: "linux"}).Failures; len(f) != tc.failures {
				t.Errorf("failures %+v", f)
			}
		})
	}
}
