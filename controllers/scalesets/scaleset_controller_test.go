// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scalesets

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/github"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/sim/githubsim"
)

var key = types.NamespacedName{Namespace: "ci", Name: "linux"}

// bench is one RunnerScaleSet on a fake cluster and a simulated GitHub.
type bench struct {
	*Reconciler
	t      *testing.T
	github *githubsim.Running
	queue  kube.Queue // woken by the session
	clock  *clocktesting.FakeClock
}

// registry returns one client, unless it is gone.
type registry struct {
	client *scaleset.Client
	gone   bool
}

func (r *registry) Get(string) (*scaleset.Client, bool) { return r.client, !r.gone }

func newBench(t *testing.T, change ...func(*v1alpha1.RunnerScaleSet)) *bench {
	t.Helper()
	return newBenchOn(t, githubsim.Options{}, change...)
}

func newBenchOn(t *testing.T, options githubsim.Options, change ...func(*v1alpha1.RunnerScaleSet)) *bench {
	t.Helper()
	sim, err := githubsim.Start(options)
	must(t, err)
	t.Cleanup(sim.Close)
	sim.AddToken("t")
	sim.AddOrg("acme")
	gh, err := scaleset.NewClient(github.Credentials{ConfigURL: sim.ConfigURL("acme"), Token: "t"}, github.Options{})
	must(t, err)
	scheme := runtime.NewScheme()
	must(t, clientgoscheme.AddToScheme(scheme))
	must(t, v1alpha1.AddToScheme(scheme))
	set := &v1alpha1.RunnerScaleSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "linux", UID: "s1", Generation: 1, Finalizers: []string{v1alpha1.ScaleSetFinalizer}},
		Spec: v1alpha1.RunnerScaleSetSpec{
			PoolRef: v1alpha1.LocalObjectReference{Name: "linux"}, PoolUID: "p1", ConnectionRef: v1alpha1.ConnectionReference{Name: "acme"},
			Name: "linux", RunnerGroup: "default", Labels: []string{"linux", "x64"},
		},
	}
	for _, c := range change {
		c(set)
	}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(set).WithStatusSubresource(set)
	for _, i := range append(Indexes(), kube.Indexes("here")...) {
		builder.WithIndex(i.Object, i.Field, i.Values)
	}
	c := builder.Build()
	b := &bench{t: t, github: sim, clock: clocktesting.NewFakeClock(time.Unix(1_000_000, 0))}
	b.Reconciler = &Reconciler{
		Reporter: kube.Reporter{Client: c, Events: events.NewFakeRecorder(100)},
		Clients:  &registry{client: gh}, Sessions: NewSessions(leads{former: b.clock.Now()}), Cluster: "here", Now: b.clock.Now,
	}
	b.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	must(t, b.Sessions.States.Start(t.Context(), b.queue))
	t.Cleanup(func() {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		must(t, b.Sessions.Start(ended))
	})
	return b
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (b *bench) reconcile() ctrl.Result {
	b.t.Helper()
	result, err := b.Reconcile(b.t.Context(), ctrl.Request{NamespacedName: key})
	must(b.t, err)
	return result
}

// settle reconciles each time that the session wakes it, until done returns true.
func (b *bench) settle(done func(*v1alpha1.RunnerScaleSet) bool) *v1alpha1.RunnerScaleSet {
	b.t.Helper()
	for {
		b.reconcile()
		if s := b.set(); done(s) {
			return s
		}
		item, _ := b.queue.Get()
		b.queue.Done(item)
	}
}

func ready(s *v1alpha1.RunnerScaleSet) bool { return conditions.IsReady(s) }

func stalled(s *v1alpha1.RunnerScaleSet) bool { return conditions.IsStalled(s) }

func gone(s *v1alpha1.RunnerScaleSet) bool { return s == nil }

func (b *bench) set() *v1alpha1.RunnerScaleSet {
	b.t.Helper()
	s := &v1alpha1.RunnerScaleSet{}
	err := b.Client.Get(b.t.Context(), key, s)
	if apierrors.IsNotFound(err) {
		return nil
	}
	must(b.t, err)
	return s
}

// change changes the record and its generation.
func (b *bench) change(do func(*v1alpha1.RunnerScaleSet)) {
	b.t.Helper()
	s := b.set()
	do(s)
	s.Generation++
	must(b.t, b.Client.Update(b.t.Context(), s))
}

func (b *bench) remote() []githubsim.ScaleSetReport { return b.github.Report().ScaleSets }

func TestAScaleSetIsCreatedAndListenedTo(t *testing.T) {
	b := newBench(t)
	s := b.settle(ready)
	sets := b.remote()
	if len(sets) != 1 || int64(sets[0].ID) != s.Status.ID || sets[0].SessionOwner != "here/p1" || !slices.Equal(sets[0].Labels, []string{"linux", "x64"}) {
		t.Errorf("on GitHub: %+v", sets)
	}
	if !conditions.IsTrue(s, v1alpha1.ListeningCondition) || !conditions.IsTrue(s, v1alpha1.LabelsAcceptedCondition) {
		t.Errorf("conditions: %+v", s.Status.Conditions)
	}
}

// A killed process leaves the session open that it opened last, even if earlier ones were replaced.
func TestTheSessionThatTookAnothersPlaceIsInTheStatus(t *testing.T) {
	b := newBench(t)
	former := b.settle(ready).Status
	b.github.ExpireSession(int(former.ID))
	b.settle(func(s *v1alpha1.RunnerScaleSet) bool { return s.Status.SessionID != former.SessionID })
}

func TestAScaleSetOfThatNameIsAdoptedAndBroughtInLine(t *testing.T) {
	b := newBench(t)
	had, err := b.Clients.(*registry).client.Create(t.Context(), scaleset.Set{Name: "linux", GroupID: 1, Labels: []string{"old"}})
	must(t, err)
	s := b.settle(ready)
	if sets := b.remote(); len(sets) != 1 || s.Status.ID != had.ID || !slices.Equal(sets[0].Labels, []string{"linux", "x64"}) {
		t.Errorf("adopted %d of %+v", s.Status.ID, sets)
	}
}

func TestNameGroupAndLabelsFollowTheRecord(t *testing.T) {
	b := newBench(t)
	group := b.github.AddRunnerGroup("acme", githubsim.Group{Name: "trusted"})
	id := b.settle(ready).Status.ID
	b.change(func(s *v1alpha1.RunnerScaleSet) {
		s.Spec.Name, s.Spec.RunnerGroup, s.Spec.Labels = "linux-2", "trusted", []string{"big"}
	})
	b.settle(ready)
	sets := b.remote()
	if len(sets) != 1 || int64(sets[0].ID) != id || sets[0].Name != "linux-2" || sets[0].GroupID != group || !slices.Equal(sets[0].Labels, []string{"big"}) {
		t.Errorf("on GitHub: %+v", sets)
	}
}

func TestAScaleSetHeldElsewhereIsLeftAlone(t *testing.T) {
	b := newBench(t)
	had, err := b.Clients.(*registry).client.Create(t.Context(), scaleset.Set{Name: "linux", GroupID: 1, Labels: []string{"theirs"}})
	must(t, err)
	b.github.StealSession(int(had.ID), "there/p9")
	s := b.settle(stalled)
	if c := conditions.Get(s, v1alpha1.ReadyCondition); c.Reason != v1alpha1.OwnedElsewhereReason || !strings.Contains(c.Message, "owned by another process") {
		t.Errorf("ready: %+v", c)
	}
	must(t, b.Client.Delete(t.Context(), s))
	b.settle(gone)
	if sets := b.remote(); len(sets) != 1 || !slices.Equal(sets[0].Labels, []string{"theirs"}) {
		t.Errorf("on GitHub: %+v", sets)
	}
}

func TestAMissingGroupStallsAndSaysWhatToDo(t *testing.T) {
	b := newBench(t, func(s *v1alpha1.RunnerScaleSet) { s.Spec.RunnerGroup = "none" })
	s := b.settle(stalled)
	c := conditions.Get(s, v1alpha1.ReadyCondition)
	if c.Reason != v1alpha1.RunnerGroupNotFoundReason || !strings.Contains(c.Message, `runner group "none"`) || !strings.Contains(c.Message, "spec.runnerGroup") {
		t.Errorf("ready: %+v", c)
	}
	b.github.AddRunnerGroup("acme", githubsim.Group{Name: "none"})
	b.settle(ready)
}

// A server that keeps other labels than requested is not asked in each pass.
func TestDroppedAndKeptLabelsAreSaid(t *testing.T) {
	for reason, options := range map[string]githubsim.Options{
		v1alpha1.LabelsDroppedReason: {SingleLabel: true, Mode: githubsim.Acquire},
		v1alpha1.LabelsKeptReason:    {LabelsFixed: true},
	} {
		t.Run(reason, func(t *testing.T) {
			b := newBench(t)
			sim, err := githubsim.Start(options)
			must(t, err)
			t.Cleanup(sim.Close)
			sim.AddToken("t")
			sim.AddOrg("acme")
			gh, err := scaleset.NewClient(github.Credentials{ConfigURL: sim.ConfigURL("acme"), Token: "t"}, github.Options{})
			must(t, err)
			b.Clients.(*registry).client = gh
			b.settle(ready)
			b.change(func(s *v1alpha1.RunnerScaleSet) { s.Spec.Labels = []string{"new", "newer"} })
			sim.ResetCounters()
			var s *v1alpha1.RunnerScaleSet
			for range 5 {
				s = b.settle(ready)
			}
			if c := conditions.Get(s, v1alpha1.LabelsAcceptedCondition); c.Status != metav1.ConditionFalse || c.Reason != reason {
				t.Errorf("labels accepted: %+v", c)
			}
			if n := sim.Report().Requests[githubsim.EndpointUpdateScaleSet]; n != 1 {
				t.Errorf("%d updates", n)
			}
		})
	}
}

func TestAForgottenScaleSetIsMadeAgain(t *testing.T) {
	b := newBench(t)
	first := b.settle(ready).Status.ID
	b.github.ForgetScaleSet(int(first))
	s := b.settle(func(s *v1alpha1.RunnerScaleSet) bool { return ready(s) && s.Status.ID != first })
	if sets := b.remote(); len(sets) != 1 || int64(sets[0].ID) != s.Status.ID {
		t.Errorf("on GitHub: %+v", sets)
	}
}

// An answer that is empty, or that denies an existing scale set, costs the record neither its scale set nor the ID.
func TestNothingFoundKeepsTheScaleSet(t *testing.T) {
	for name, fault := range map[string]githubsim.Fault{
		"an empty body":   {Status: http.StatusOK},
		"an empty object": {Status: http.StatusOK, Body: "{}"},
		"an empty list":   {Status: http.StatusOK, Body: `{"count":0,"value":[]}`},
		"404":             {Status: http.StatusNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			id := b.settle(ready).Status.ID
			for _, fault.Endpoint = range []githubsim.Endpoint{githubsim.EndpointGetScaleSet, githubsim.EndpointFindScaleSet} {
				b.github.AddFault(fault)
			}
			b.clock.Step(verifyInterval)
			for range 3 {
				_, _ = b.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
			}
			if s := b.set(); s.Status.ID != id || conditions.IsReady(s) || len(b.remote()) != 1 {
				t.Errorf("scale set %d is %d; %d are there", id, s.Status.ID, len(b.remote()))
			}
		})
	}
}

// A process that has just started has no session. If GitHub once does not know the scale set, it must not be left behind.
func TestADeletedRecordIsKeptWhileGitHubMayHaveTheSet(t *testing.T) {
	for name, tc := range map[string]struct{ times, left int }{"it is there after all": {1, 0}, "it never is": {0, 1}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			remote, err := b.Clients.(*registry).client.Create(t.Context(), scaleset.Set{Name: "linux", GroupID: 1, Labels: []string{"linux", "x64"}})
			must(t, err)
			s := b.set()
			s.Status.ID = remote.ID
			must(t, b.Client.Status().Update(t.Context(), s))
			must(t, b.Client.Delete(t.Context(), s))
			b.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointCreateSession, Status: http.StatusNotFound, Times: tc.times})
			waits := func(s *v1alpha1.RunnerScaleSet) bool {
				return s == nil || strings.Contains(conditions.GetMessage(s, v1alpha1.ReadyCondition), "does not know")
			}
			if b.settle(waits) == nil {
				t.Fatal("its record is gone at once")
			}
			if tc.times == 0 {
				b.clock.Step(goneAfter)
			}
			b.settle(gone)
			if len(b.remote()) != tc.left {
				t.Errorf("%d scale sets are left", len(b.remote()))
			}
		})
	}
}

func TestDeletionWaitsForRunnersThenDeletesThere(t *testing.T) {
	b := newBench(t)
	s := b.settle(ready)
	controller := true
	runner := &v1alpha1.Runner{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ci", Name: "linux-a", Labels: map[string]string{v1alpha1.PoolLabel: "linux"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: "RunnerPool", Name: "linux", UID: "p1", Controller: &controller}},
	}}
	must(t, b.Client.Create(t.Context(), runner))
	must(t, b.Client.Delete(t.Context(), s))
	b.reconcile()
	if len(b.remote()) != 1 || b.set() == nil {
		t.Fatal("deleted while a runner was left")
	}
	must(t, b.Client.Delete(t.Context(), runner))
	b.settle(gone)
	if sets := b.remote(); len(sets) != 0 {
		t.Errorf("on GitHub: %+v", sets)
	}
}

func TestDeletionWithoutTheConnectionIsGivenUpAfterABound(t *testing.T) {
	b := newBench(t)
	s := b.settle(ready)
	b.Clients.(*registry).gone = true
	must(t, b.Client.Delete(t.Context(), s))
	if b.reconcile(); b.set() == nil {
		t.Fatal("given up at once")
	}
	b.clock.SetTime(b.set().DeletionTimestamp.Add(orphanAfter))
	b.settle(gone)
}

// A revoked token does not block the deletion of its pools forever.
func TestDeletionWithRefusedCredentialsIsGivenUpAfterABound(t *testing.T) {
	b := newBench(t)
	s := b.settle(ready)
	b.github.RevokeToken("t")
	b.github.ExpireAdminTokens() // the connection has these from before
	for _, e := range []githubsim.Endpoint{githubsim.EndpointGetMessage, githubsim.EndpointRefreshSession, githubsim.EndpointCreateSession} {
		b.github.AddFault(githubsim.Fault{Endpoint: e, Status: http.StatusUnauthorized})
	}
	must(t, b.Client.Delete(t.Context(), s))
	if b.reconcile(); b.set() == nil {
		t.Fatal("given up at once")
	}
	b.clock.SetTime(b.set().DeletionTimestamp.Add(orphanAfter))
	b.settle(gone)
}

// The status also has GitHub's answer as a number until the outage is over.
func TestTheCodeOfAnOutageIsInTheStatus(t *testing.T) {
	b := newBench(t)
	b.github.AddFault(githubsim.Fault{Endpoint: githubsim.EndpointCreateSession, Status: 500})
	s := b.settle(func(s *v1alpha1.RunnerScaleSet) bool {
		return conditions.GetReason(s, v1alpha1.ReadyCondition) == v1alpha1.GitHubUnavailableReason
	})
	if o := s.Status.Outage; o == nil || o.Code != 500 {
		t.Errorf("%+v: %s", o, conditions.GetMessage(s, v1alpha1.ReadyCondition))
	}
	b.github.ClearFaults()
	if s = b.settle(ready); s.Status.Outage != nil {
		t.Errorf("it is over, and the status has %+v", s.Status.Outage)
	}
}

func TestSessionOwnersOfPoolsThatAreGone(t *testing.T) {
	b := newBench(t)
	must(t, b.Client.Create(t.Context(), &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "other", UID: "p2"}}))
	for owner, want := range map[string]bool{"here/p2": false, "here/p3": true, "there/p3": false, "": false} {
		if got := b.ownerGone(owner); got != want {
			t.Errorf("%q is gone: %v", owner, got)
		}
	}
}
