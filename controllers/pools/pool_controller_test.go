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

	"github.com/fluxcd/pkg/runtime/conditions"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/policies"
	"github.com/corral-dev/corral/controllers/runners"
	"github.com/corral-dev/corral/internal/demand"
	"github.com/corral-dev/corral/internal/github/scaleset"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/podspec"
	"github.com/corral-dev/corral/internal/poolstatus"
	"github.com/corral-dev/corral/internal/scaling"
)

var key = types.NamespacedName{Namespace: "ci", Name: "linux"}

// bench is one RunnerPool with a ready RunnerScaleSet on a fake cluster, and a session that reports what the test sets.
type bench struct {
	*Reconciler
	t         *testing.T
	snapshot  scaleset.Snapshot
	announced []int
	now       time.Time
	refusal   error // of the API server, to the dry run of a pod
	tried     []*corev1.Pod
	// refusedRevision is the API server's refusal of a ControllerRevision.
	refusedRevision error
	stale           bool // the cache shows no Runner
	restarted       int  // number of restarted watches
	broken          bool // listing Runners fails
	claimsBroken    bool // listing claims fails, too
	asked           int  // number of requests for newer counts
	results         runners.Results
	uncounted       bool // no failure is recorded yet
	ended           []v1alpha1.RunnerCause
	wasOnline       bool // of the last suspected runner
	suspects        []string
	reading         demand.Reading // of the other demand sources
	atMax           bool
}

func (b *bench) Snapshot(types.NamespacedName) (scaleset.Snapshot, bool) { return b.snapshot, true }
func (b *bench) Announce(_ types.NamespacedName, capacity int) {
	b.announced = append(b.announced, capacity)
}
func (b *bench) Refresh(types.NamespacedName) { b.asked++ }
func (b *bench) SinceLastPass(types.NamespacedName) runners.Results {
	taken := b.results
	b.results = runners.Results{}
	return taken
}
func (b *bench) HasFailed(types.NamespacedName, types.UID) bool { return !b.uncounted }
func (b *bench) MarkFailed(_ types.NamespacedName, _ types.UID, why poolstatus.Assessment) {
	b.ended = append(b.ended, why.Cause)
}
func (b *bench) SuspectSome(_ string, s poolstatus.Suspects, wereOnline map[string]bool, _ time.Time) {
	for _, name := range s.Names {
		b.wasOnline = wereOnline[name]
		b.suspects = append(b.suspects, name)
	}
}
func (b *bench) Completion(types.NamespacedName, types.UID) (time.Time, bool) {
	return time.Time{}, false
}
func (b *bench) LastJob(r *v1alpha1.Runner) (*v1alpha1.JobReference, int32) {
	return r.Status.Job, r.Status.JobsDone
}
func (b *bench) Reading(types.NamespacedName) demand.Reading               { return b.reading }
func (b *bench) AtMax(_ types.NamespacedName, atMax bool)                  { b.atMax = atMax }
func (b *bench) Retain(_ types.NamespacedName, _ func(runner string) bool) {}

func (b *bench) Ghost(types.UID) bool { return false }

func (b *bench) Restart(string) bool {
	b.restarted++
	return true
}

func newBench(t *testing.T) *bench {
	t.Helper()
	scheme := runtime.NewScheme()
	must(t, clientgoscheme.AddToScheme(scheme))
	must(t, v1alpha1.AddToScheme(scheme))
	limit := int32(5)
	p := &v1alpha1.RunnerPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "linux", UID: "p1", Generation: 1},
		Spec: v1alpha1.RunnerPoolSpec{
			ConnectionRef: v1alpha1.ConnectionReference{Name: "acme"}, Scale: v1alpha1.ScaleSpec{Max: &limit}, Template: template("runner:1"),
		},
	}
	connection := &v1alpha1.GitHubConnection{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "acme"},
		Spec:       v1alpha1.GitHubConnectionSpec{URL: "https://github.com/acme", SecretRef: &v1alpha1.LocalObjectReference{Name: "github"}},
	}
	b := &bench{t: t, now: time.Unix(1_000_000, 0), snapshot: scaleset.Snapshot{State: scaleset.Listening, Known: true, Statistics: scaleset.Statistics{RegisteredRunners: 1}}}
	builder := fake.NewClientBuilder().WithScheme(scheme)
	for _, i := range kube.Indexes("here") {
		builder.WithIndex(i.Object, i.Field, i.Values)
	}
	live := builder.WithObjects(p, connection).
		WithStatusSubresource(&v1alpha1.RunnerPool{}, &v1alpha1.RunnerScaleSet{}, &v1alpha1.Runner{}).
		WithIndex(&appsv1.ControllerRevision{}, metav1.ObjectNameField, func(o client.Object) []string { return []string{o.GetName()} }). // as in the API server
		WithInterceptorFuncs(interceptor.Funcs{Create: b.create}).Build()
	c := interceptor.NewClient(live, interceptor.Funcs{List: b.list})
	b.Reconciler = &Reconciler{
		Reporter: kube.Reporter{Client: c, Events: events.NewFakeRecorder(100)}, Sessions: b, Results: b,
		Live: live, Demand: []Reader{b}, Jobs: b, Watches: b,
		Policies: policies.NewEngine(func() time.Time { return b.now }),
		Now:      func() time.Time { return b.now },
		Claims:   runners.Claims{Client: c, Live: c, Memory: runners.NewMemory()},
	}
	return b
}

// create refuses the dry run of a pod if the test requests it, and sets the creation time.
func (b *bench) create(ctx context.Context, c client.WithWatch, obj client.Object, o ...client.CreateOption) error {
	if pod, isPod := obj.(*corev1.Pod); isPod {
		b.tried = append(b.tried, pod)
		if b.refusal != nil {
			return b.refusal
		}
	}
	if _, isRevision := obj.(*appsv1.ControllerRevision); isRevision && b.refusedRevision != nil {
		return b.refusedRevision
	}
	obj.SetCreationTimestamp(metav1.Time{Time: b.now})
	return c.Create(ctx, obj, o...)
}

// list hides the Runners if the test requests it.
func (b *bench) list(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
	switch _, runners := list.(*v1alpha1.RunnerList); {
	case runners && b.stale:
		return nil
	case runners && b.broken:
		return fmt.Errorf("the cache is broken")
	}
	if _, claims := list.(*corev1.PersistentVolumeClaimList); claims && b.claimsBroken {
		return fmt.Errorf("the cache of claims is broken")
	}
	return c.List(ctx, list, o...)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func template(image string) runtime.RawExtension {
	return runtime.RawExtension{Raw: fmt.Appendf(nil, `{"spec":{"containers":[{"name":"runner","image":%q}]}}`, image)}
}

func (b *bench) reconcile() {
	b.t.Helper()
	_, err := b.Reconcile(b.t.Context(), ctrl.Request{NamespacedName: key})
	must(b.t, err)
}

// start creates the record and makes the scale set ready.
func (b *bench) start() {
	b.t.Helper()
	b.reconcile()
	set := &v1alpha1.RunnerScaleSet{}
	must(b.t, b.Client.Get(b.t.Context(), key, set))
	set.Status.ID, set.Status.Name, set.Status.ObservedGeneration = 7, set.Spec.Name, set.Generation
	conditions.MarkTrue(set, v1alpha1.ReadyCondition, v1alpha1.SucceededReason, "listening")
	must(b.t, b.Client.Status().Update(b.t.Context(), set))
	b.reconcile()
}

func (b *bench) pool() *v1alpha1.RunnerPool {
	b.t.Helper()
	p := &v1alpha1.RunnerPool{}
	must(b.t, b.Client.Get(b.t.Context(), key, p))
	return p
}

func (b *bench) change(do func(*v1alpha1.RunnerPool)) {
	b.t.Helper()
	p := b.pool()
	do(p)
	p.Generation++
	must(b.t, b.Client.Update(b.t.Context(), p))
}

func (b *bench) runners() []v1alpha1.Runner {
	b.t.Helper()
	list := &v1alpha1.RunnerList{}
	must(b.t, b.Client.List(b.t.Context(), list))
	return list.Items
}

func (b *bench) readyReason() string {
	b.t.Helper()
	c := conditions.Get(b.pool(), v1alpha1.ReadyCondition)
	return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
}

func TestJobsBecomeRunnersOnce(t *testing.T) {
	b := newBench(t)
	b.start()
	b.snapshot.Assigned = 3
	b.reconcile()
	b.reconcile()
	if n := len(b.runners()); n != 3 {
		t.Errorf("%d runners for 3 jobs", n)
	}
	p := b.pool()
	if d := p.Status.Decision; d.Desired != 3 || d.Announced != 5 || d.Reason != "3 jobs" || p.Status.GetJobs() != 3 || p.Status.Runners.Pending != 3 {
		t.Errorf("decision %+v, runners %+v", d, p.Status.Runners)
	}
	if !conditions.IsReady(p) {
		t.Errorf("ready: %s", b.readyReason())
	}
	if last := b.announced[len(b.announced)-1]; last != 5 {
		t.Errorf("announced %d", last)
	}
}

func TestNothingIsStartedBeforeTheScaleSetIsThere(t *testing.T) {
	b := newBench(t)
	b.snapshot.Assigned = 3
	b.reconcile()
	if n := len(b.runners()); n != 0 {
		t.Errorf("%d runners", n)
	}
	if got := b.readyReason(); !strings.HasPrefix(got, "Unknown Progressing") {
		t.Errorf("ready: %s", got)
	}
}

func TestAJobThatCompletedLeavesSupplyAtOnce(t *testing.T) {
	b := newBench(t)
	b.start()
	b.snapshot.Assigned = 2
	b.reconcile()
	name := b.runners()[0].Name
	event := scaleset.JobEvent{Type: scaleset.JobCompleted, JobID: "j", RunnerName: name, Result: "succeeded", At: b.now}
	b.snapshot.Completed = map[string]scaleset.JobEvent{name: event}
	b.reconcile()
	if n := len(b.runners()); n != 3 {
		t.Errorf("%d runners: 2 jobs are assigned, and one runner is done", n)
	}
}

func TestABadTemplateLeavesTheLastGoodOneInForce(t *testing.T) {
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "x", nil)
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "x", fmt.Errorf("exceeded quota: team"))
	cases := map[string]struct {
		template runtime.RawExtension
		refusal  error
		want     string // message of Ready; empty if accepted
	}{
		"a typo":                 {runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"runner","imge":"x"}]}}`)}, nil, `unknown field "spec.containers[0].imge"`},
		"refused by the server":  {template("runner:2"), invalid, "is invalid"},
		"a connection's Secret":  {runtime.RawExtension{Raw: []byte(`{"spec":{"containers":[{"name":"runner","image":"x","envFrom":[{"secretRef":{"name":"github"}}]}]}}`)}, nil, "credentials of a GitHubConnection or a PoolSource"},
		"an exhausted quota":     {template("runner:2"), quota, ""},
		"formatted another way":  {runtime.RawExtension{Raw: []byte(`{"spec": {"containers": [{"image": "runner:1", "name": "runner"}]}}`)}, invalid, ""},
		"accepted by the server": {template("runner:2"), nil, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.start()
			good := b.pool().Status.Revision
			b.refusal = tc.refusal
			b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Template = tc.template })
			b.snapshot.Assigned = 1
			b.reconcile()
			p := b.pool()
			valid := conditions.IsTrue(p, v1alpha1.TemplateValidCondition)
			if valid != (tc.want == "") || conditions.IsStalled(p) == valid || !strings.Contains(b.readyReason(), tc.want) {
				t.Errorf("ready: %s", b.readyReason())
			}
			if !valid && p.Status.Revision != good {
				t.Errorf("revision %s, not %s", p.Status.Revision, good)
			}
			if updated := b.updated(); (updated == "False "+v1alpha1.TemplateInvalidReason) == valid {
				t.Errorf("updated: %s", updated)
			}
			if list := b.runners(); len(list) != 1 || list[0].Spec.Revision != p.Status.Revision {
				t.Errorf("runners: %+v", list)
			}
		})
	}
}

func TestJobsAreServedWhileATemplateCannotBeTried(t *testing.T) {
	b := newBench(t)
	b.start()
	good := b.pool().Status.Revision
	b.refusal = apierrors.NewInternalError(fmt.Errorf("an admission webhook is down"))
	b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Template = template("runner:2") })
	b.snapshot.Assigned = 2
	b.reconcile()
	if list := b.runners(); len(list) != 2 || list[0].Spec.Revision != good {
		t.Errorf("runners: %+v", list)
	}
	b.refusal = nil
	b.reconcile()
	if b.pool().Status.Revision == good {
		t.Error("not tried again")
	}
}

func TestATemplateThatIsRefusedAtFirstIsTriedAgain(t *testing.T) {
	b := newBench(t)
	b.refusal = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "x", fmt.Errorf("serviceaccount ci not found"))
	result, err := b.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	if err != nil || result.RequeueAfter == 0 || !conditions.IsStalled(b.pool()) {
		t.Errorf("%+v, %v: %s", result, err, b.readyReason())
	}
}

func TestAScaleSetHeldElsewhereIsNotServed(t *testing.T) {
	b := newBench(t)
	b.start()
	b.snapshot.State, b.snapshot.Assigned = scaleset.OwnedElsewhere, 4
	b.reconcile()
	if n := len(b.runners()); n != 0 {
		t.Errorf("%d runners for another's jobs", n)
	}
}

func TestRunnersOfAFormerScaleSetAreReplaced(t *testing.T) {
	b := newBench(t)
	b.start()
	b.snapshot.Assigned = 1
	b.reconcile()
	set := &v1alpha1.RunnerScaleSet{}
	must(t, b.Client.Get(t.Context(), key, set))
	set.Status.ID = 8
	must(t, b.Client.Status().Update(t.Context(), set))
	b.allEvents()
	former := b.runners()[0].Name
	b.reconcile()
	want := "Normal RunnersEnded 1 runner without a job: " + former + "; registered with scale set 7, and the pool has scale set 8 by now"
	if told := b.allEvents(); !slices.Contains(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
	if list := b.runners(); len(list) != 2 || list[1].Spec.ScaleSetID != 8 {
		t.Errorf("runners: %+v", list)
	}
}

// GitHub's counts for the new scale set do not include the job of a runner in the previous one. A job of the new scale set
// gets its own runner.
func TestAJobOfAFormerScaleSetTakesNoOthersRunner(t *testing.T) {
	b := newBench(t)
	b.start()
	b.snapshot.Assigned = 1
	b.reconcile()
	b.work(b.runners()[0].Name)
	b.reconcile()
	most := b.announced[len(b.announced)-1]
	set := &v1alpha1.RunnerScaleSet{}
	must(t, b.Client.Get(t.Context(), key, set))
	set.Status.ID = 8
	must(t, b.Client.Status().Update(t.Context(), set))
	b.reconcile()
	if list := b.runners(); len(list) != 2 || list[1].Spec.ScaleSetID != 8 {
		t.Errorf("runners: %+v", list)
	}
	if n := b.announced[len(b.announced)-1]; n != most-1 {
		t.Errorf("announced %d, want one less than %d", n, most)
	}
	b.snapshot.Assigned = 0
	b.reconcile()
	if n := b.pool().Status.Decision.Desired; n != 1 {
		t.Errorf("%d runners are desired for the former scale set's job", n)
	}
}

func TestRevisionsThatNoRunnerWasMadeFromGo(t *testing.T) {
	b := newBench(t)
	b.start()
	first := b.pool().Status.Revision
	for i := range 3 {
		b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Template = template(fmt.Sprint("runner:", i+2)) })
		b.reconcile()
	}
	b.reconcile()
	if names := b.revisions(); len(names) != 2 || !slices.Contains(names, first) {
		t.Errorf("none of them ran yet: %v are left, not the first and the last", names)
	}
	b.snapshot.Assigned = 1
	b.reconcile()
	b.work(b.runners()[0].Name)
	b.reconcile()
	b.reconcile()
	if names := b.revisions(); len(names) != 1 || names[0] != b.pool().Status.Revision {
		t.Errorf("the last did well: %v are left", names)
	}
}

func TestSuspensionAnnouncesNothingAndServesWhatWasAccepted(t *testing.T) {
	b := newBench(t)
	b.start()
	b.change(func(p *v1alpha1.RunnerPool) { p.Spec.StopPolicy = v1alpha1.StopDrain })
	b.snapshot.Assigned = 1
	b.reconcile()
	if last := b.announced[len(b.announced)-1]; last != 0 || len(b.runners()) != 1 {
		t.Errorf("announced %d, %d runners", last, len(b.runners()))
	}
	if got := b.readyReason(); !strings.HasPrefix(got, "False Suspended") {
		t.Errorf("ready: %s", got)
	}
}

func TestHoldAnnouncesNothingAndKeepsIdleRunners(t *testing.T) {
	b := newBench(t)
	b.start()
	before := len(b.runners())
	b.change(func(p *v1alpha1.RunnerPool) { p.Spec.StopPolicy, p.Spec.Scale.Idle = v1alpha1.StopHold, new(int32(2)) })
	b.snapshot.Assigned = 1
	b.reconcile()
	if last := b.announced[len(b.announced)-1]; last != 0 || len(b.runners()) != 3 {
		t.Errorf("announced %d, %d runners, before %d", last, len(b.runners()), before)
	}
	if got := b.readyReason(); !strings.HasPrefix(got, "False Suspended") {
		t.Errorf("ready: %s", got)
	}
}

// The first status of every pool contains its conditions, without any event.
func TestEachPoolHasItsConditions(t *testing.T) {
	b := newBench(t)
	b.reconcile()
	for _, condition := range []string{v1alpha1.SaturatedCondition, v1alpha1.DrainableCondition, v1alpha1.RunnerVersionCondition} {
		if conditions.Get(b.pool(), condition) == nil {
			t.Errorf("%s is absent from the first status", condition)
		}
	}
	b.start()
	p := b.pool()
	got := []string{conditions.GetReason(p, v1alpha1.SaturatedCondition), conditions.GetReason(p, v1alpha1.DrainableCondition), conditions.GetReason(p, v1alpha1.RunnerVersionCondition)}
	if want := []string{v1alpha1.WithinMaxReason, v1alpha1.NoOtherBudgetsReason, v1alpha1.VersionUnknownReason}; !slices.Equal(got, want) {
		t.Errorf("the reasons are %q, not %q", got, want)
	}
}

func TestAnotherConnectionMeansAnotherScaleSet(t *testing.T) {
	b := newBench(t)
	b.start()
	b.change(func(p *v1alpha1.RunnerPool) { p.Spec.ConnectionRef.Name = "other" })
	b.reconcile()
	set := &v1alpha1.RunnerScaleSet{}
	must(t, b.Client.Get(t.Context(), key, set))
	if set.DeletionTimestamp.IsZero() || b.announced[len(b.announced)-1] != 0 {
		t.Errorf("the former scale set stays: %+v, announced %v", set, b.announced)
	}
	if why := b.pool().Status.Decision.Reason; why != "waiting until the previous scale set is deleted: serving 0 jobs" {
		t.Errorf("nobody suspended it: %s", why)
	}
}

func TestTheScaleSetsTroubleIsThePools(t *testing.T) {
	b := newBench(t)
	b.start()
	set := &v1alpha1.RunnerScaleSet{}
	must(t, b.Client.Get(t.Context(), key, set))
	conditions.MarkFalse(set, v1alpha1.ReadyCondition, v1alpha1.RunnerGroupNotFoundReason, "no such group")
	conditions.MarkStalled(set, v1alpha1.RunnerGroupNotFoundReason, "no such group")
	must(t, b.Client.Status().Update(t.Context(), set))
	b.reconcile()
	if got := b.readyReason(); got != "False RunnerGroupNotFound: scale set: no such group" || !conditions.IsStalled(b.pool()) {
		t.Errorf("ready: %s", got)
	}
}

// A pass on a cache that does not show a runner yet must not create it again.
func TestCreatedRunnersAreExpected(t *testing.T) {
	m := &memory{}
	e := m.of(key).expectations
	now := time.Unix(1000, 0)
	made := func(name string) *v1alpha1.Runner {
		return &v1alpha1.Runner{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Time{Time: now}}}
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		e.expect(made(name))
	}
	e.forget("c")
	m.gone(key, "d") // within the first pass
	if missing, overdue := e.missing("", []*v1alpha1.Runner{made("a")}, now); len(missing) != 1 || missing[0].Name != "b" || overdue {
		t.Errorf("missing %v, overdue %t", missing, overdue)
	}
	later := now.Add(askAfter)
	missing, overdue := e.missing("", nil, later)
	if len(missing) != 1 || !overdue {
		t.Errorf("b is given up, or a is expected again: %v, overdue %t", missing, overdue)
	}
	if n := e.confirm(missing, map[string]*v1alpha1.Runner{"b": made("b")}, later); n != 1 {
		t.Errorf("%d are there", n)
	}
	if missing, overdue := e.missing("", nil, later.Add(askAfter-1)); len(missing) != 1 || overdue {
		t.Errorf("asked again too soon, or given up although it is there: %v, overdue %t", missing, overdue)
	}
	if missing, overdue = e.missing("", nil, later.Add(askAfter)); !overdue {
		t.Error("not asked again")
	}
	e.confirm(missing, nil, later.Add(askAfter))
	if missing, _ := e.missing("", nil, later.Add(askAfter)); len(missing) != 0 {
		t.Errorf("expected although it is gone: %v", missing)
	}
}

// The API server created the runner, but its answer was lost while the watch is silent.
func TestALostAnswerMakesNoSecondRunner(t *testing.T) {
	b := newBench(t)
	b.start()
	b.snapshot.Assigned = 2
	b.stale = true
	direct := b.Client
	b.Client = interceptor.NewClient(direct.(client.WithWatch), interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		err := c.Create(ctx, o, opts...)
		if _, ok := o.(*v1alpha1.Runner); ok && err == nil {
			err = errors.New("connection reset by peer")
		}
		return err
	}})
	for range 10 {
		_, _ = b.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
		b.now = b.now.Add(time.Second)
	}
	list := &v1alpha1.RunnerList{}
	must(t, b.Live.List(t.Context(), list))
	if n := len(list.Items); n != 2 {
		t.Errorf("%d runners for 2 jobs", n)
	}
}

// The watch of Runners can be silent for minutes while requests work.
func TestASilentWatchMakesNoSecondSetOfRunners(t *testing.T) {
	b := newBench(t)
	b.start()
	b.snapshot.Assigned = 3
	b.stale = true
	for range 20 {
		b.reconcile()
		b.now = b.now.Add(askAfter)
	}
	gone := &v1alpha1.RunnerList{}
	must(t, b.Live.List(t.Context(), gone))
	if n := len(gone.Items); n != 3 || b.restarted == 0 {
		t.Errorf("%d runners for 3 jobs, the watch was restarted %d times", n, b.restarted)
	}
	gone.Items[0].Finalizers = nil
	must(t, b.Client.Update(t.Context(), &gone.Items[0]))
	must(t, b.Client.Delete(t.Context(), &gone.Items[0]))
	b.reconcile()
	b.stale = false
	if n := len(b.runners()); n != 3 {
		t.Errorf("%d runners for 3 jobs, one of which was deleted unseen", n)
	}
}

// A runner may crash or complete its job and be deleted before any pass sees it. The next job must not wait until the
// runner is no longer expected.
func TestARunnerThatIsGoneBeforeThePassAfterItsCreationIsReplacedAtOnce(t *testing.T) {
	b := newBench(t)
	b.start()
	b.snapshot.Assigned = 1
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	defer queue.ShutDown()
	for _, want := range []string{podspec.NameStem("linux", "p1") + "1", podspec.NameStem("linux", "p1") + "2"} {
		b.reconcile()
		made := b.runners()
		if len(made) != 1 || made[0].Name != want {
			t.Fatalf("want %s: %v", want, made)
		}
		made[0].Finalizers = nil
		must(t, b.Client.Update(t.Context(), &made[0]))
		must(t, b.Client.Delete(t.Context(), &made[0]))
		b.memory.ofRunners().Delete(t.Context(), event.DeleteEvent{Object: &made[0]}, queue)
	}
}

// Another process with no memory and a stale cache chooses the same names.
func TestAStaleCacheNeverCreatesTwice(t *testing.T) {
	b := newBench(t)
	b.start()
	b.snapshot.Assigned = 3
	b.stale = true
	b.reconcile()
	b.memory = memory{}
	b.reconcile()
	b.stale = false
	if n := len(b.runners()); n != 3 {
		t.Errorf("%d runners for 3 jobs", n)
	}
	b.snapshot.Assigned = 4
	b.reconcile()
	if n := len(b.runners()); n != 4 {
		t.Errorf("%d runners for 4 jobs", n)
	}
}

func (b *bench) fail(n int, cause v1alpha1.RunnerCause) {
	for range n {
		b.results.Failures = append(b.results.Failures, runners.Failure{Revision: b.pool().Status.Revision, Cause: cause, Message: "no such image", Began: b.now, At: b.now})
	}
}

func TestAJobThatWasOverBeforeThePoolLookedEndsARowOfFailures(t *testing.T) {
	for name, tc := range map[string]struct {
		began time.Duration // after the last failure
		want  bool
	}{
		"begun after it":  {time.Second, true},
		"begun before it": {-time.Minute, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.start()
			b.fail(3, v1alpha1.CauseImagePull)
			b.results.Worked = map[string]runners.Worked{b.pool().Status.Revision: {Began: b.now.Add(tc.began)}}
			b.reconcile()
			if conditions.IsTrue(b.pool(), v1alpha1.HealthyCondition) != tc.want {
				t.Error(b.readyReason())
			}
		})
	}
}

func TestARowOfFailuresHoldsThePoolBack(t *testing.T) {
	b := newBench(t)
	b.start()
	b.snapshot.Assigned = 3
	b.fail(3, v1alpha1.CauseImagePull)
	b.reconcile()
	if n, last := len(b.runners()), b.announced[len(b.announced)-1]; n != 0 || last != 0 {
		t.Errorf("%d runners made, %d announced", n, last)
	}
	if got := b.readyReason(); got != "False RunnersFailing: 3 runners in a row failed (ImagePull: no such image); next try 13:46:50Z" || !conditions.IsFalse(b.pool(), v1alpha1.HealthyCondition) {
		t.Errorf("ready: %s", got)
	}
	b.now = b.now.Add(scaling.ProbeMin)
	b.reconcile()
	b.reconcile()
	if n, last := len(b.runners()), b.announced[len(b.announced)-1]; n != 1 || last != 1 {
		t.Fatalf("%d runners made, %d announced", n, last)
	}
	name := b.runners()[0].Name
	b.snapshot.Started = map[string]scaleset.JobEvent{name: {Type: scaleset.JobStarted, JobID: "j", RunnerName: name, At: b.now.Add(time.Second)}}
	b.reconcile()
	if n, last := len(b.runners()), b.announced[len(b.announced)-1]; n != 3 || last != 5 || !conditions.IsReady(b.pool()) {
		t.Errorf("one runner has a job: %d runners, %d announced, %s", n, last, b.readyReason())
	}
}

// A runner that was idle before the failures neither proves anything nor counts as a probe.
func TestAnOlderIdleRunnerKeepsNoProbeAway(t *testing.T) {
	b := newBench(t)
	b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Idle = new(int32(1)) })
	b.start()
	b.reconcile()
	b.run(b.runners()[0])
	b.now = b.now.Add(time.Hour)
	b.snapshot.Counted, b.snapshot.Statistics.IdleRunners = b.now, 1
	b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Idle = new(int32(2)) })
	b.fail(3, v1alpha1.CauseImagePull)
	b.reconcile()
	if n := len(b.runners()); n != 1 {
		t.Fatalf("%d runners right after the failures", n)
	}
	b.now = b.now.Add(scaling.ProbeMin)
	b.reconcile()
	if n := len(b.runners()); n != 2 || !conditions.IsFalse(b.pool(), v1alpha1.HealthyCondition) {
		t.Errorf("%d runners, one of them to try, %s", n, b.readyReason())
	}
}

// After a restart, the completions of jobs arrive later than the ends of their runners.
func TestWhatEndedWhileNobodyListenedIsNoFailure(t *testing.T) {
	for name, tc := range map[string]struct {
		state     scaleset.State
		listening time.Duration
		clean     bool
		open      bool
	}{
		"a session was just opened": {state: scaleset.Listening, listening: time.Second, clean: true},
		"there is no session":       {state: scaleset.Refused, listening: time.Hour, clean: true},
		"it was listened to GitHub": {state: scaleset.Listening, listening: time.Hour, clean: true, open: true},
		"it ended with an error":    {state: scaleset.Opening, open: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.start()
			b.snapshot.State, b.snapshot.Since = tc.state, b.now.Add(-tc.listening)
			b.fail(3, v1alpha1.CauseCrash)
			for i := range b.results.Failures {
				b.results.Failures[i].Clean = tc.clean
			}
			b.reconcile()
			if open := conditions.IsFalse(b.pool(), v1alpha1.HealthyCondition); open != tc.open {
				t.Errorf("held back: %v", open)
			}
		})
	}
}

func TestAnotherTemplateIsTriedAfresh(t *testing.T) {
	b := newBench(t)
	b.start()
	b.snapshot.Assigned = 2
	b.fail(3, v1alpha1.CauseImagePull)
	b.reconcile()
	b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Template = template("runner:2") })
	b.fail(3, v1alpha1.CauseUnschedulable)
	b.reconcile()
	if n := len(b.runners()); n != 2 {
		t.Errorf("%d runners for 2 jobs", n)
	}
}

func TestAQuotaLowersWhatIsTakenIn(t *testing.T) {
	b := newBench(t)
	b.start()
	b.snapshot.Assigned = 3
	b.reconcile()
	blocked := b.runners()[0]
	blocked.Status.Cause, blocked.Status.Reason = v1alpha1.CauseQuota, "exceeded quota: pods"
	must(t, b.Client.Status().Update(t.Context(), &blocked))
	b.snapshot.Assigned = 5
	b.reconcile()
	if n, last := len(b.runners()), b.announced[len(b.announced)-1]; n != 3 || last != 2 {
		t.Errorf("%d runners, %d announced", n, last)
	}
	if got := b.readyReason(); got != "False QuotaExceeded: runner "+blocked.Name+": exceeded quota: pods" {
		t.Errorf("ready: %s", got)
	}
}

// run makes a runner's container run.
func (b *bench) run(r v1alpha1.Runner) {
	b.t.Helper()
	r.Status.StartedAt = &metav1.Time{Time: b.now}
	must(b.t, b.Client.Status().Update(b.t.Context(), &r))
	must(b.t, b.Client.Create(b.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: r.Name, Labels: r.Labels, Annotations: map[string]string{v1alpha1.RunnerUIDAnnotation: string(r.UID)}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: v1alpha1.RunnerContainerName, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: b.now}}},
		}}},
	}))
}

func TestARunnerThatGitHubDoesNotCountIsDoubted(t *testing.T) {
	b := newBench(t)
	b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Idle = new(int32(1)) })
	b.start()
	b.reconcile()
	b.run(b.runners()[0])
	b.snapshot.Counted = b.now
	b.now = b.now.Add(v1alpha1.DefaultConnectDeadline)
	b.reconcile()
	if n := len(b.runners()); n != 1 || b.asked != 1 {
		t.Fatalf("%d runners, GitHub asked %d times: its count is from before the deadline", n, b.asked)
	}
	b.snapshot.Counted = b.now
	result, err := b.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	if err != nil || result.RequeueAfter == 0 || result.RequeueAfter > runners.SuspectInterval {
		t.Errorf("looked at again after %s, %v", result.RequeueAfter, err)
	}
	if n := len(b.runners()); n != 1 || len(b.suspects) != 1 || b.wasOnline || len(b.ended) != 0 {
		t.Errorf("%d runners, doubted %v (was online: %v), given up %v", n, b.suspects, b.wasOnline, b.ended)
	}
}

// Counts arrive with messages, and none arrives while nothing happens. A count taken while another runner was ending would
// hide for minutes that a runner is missing.
func TestACountThatARunnerWhichEndedMayBeInIsAskedForAgain(t *testing.T) {
	b := newBench(t)
	b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Idle = new(int32(2)) })
	b.start()
	b.reconcile()
	for _, r := range b.runners() {
		b.run(r)
	}
	must(t, b.Client.Delete(t.Context(), &b.runners()[0])) // it is still being deregistered
	b.reconcile()
	b.run(b.runners()[2])
	b.now = b.now.Add(v1alpha1.DefaultConnectDeadline)
	b.snapshot.Counted, b.snapshot.Statistics.IdleRunners = b.now, 2 // the ending runner, and one of the two others
	b.reconcile()
	gone := b.runners()[0]
	gone.Finalizers = nil
	must(t, b.Client.Update(t.Context(), &gone))
	b.reconcile()
	if len(b.runners()) != 2 || b.asked != 0 || len(b.suspects) != 0 {
		t.Fatalf("%d runners, GitHub asked %d times, doubted %v", len(b.runners()), b.asked, b.suspects)
	}
	b.now = b.now.Add(time.Minute)
	if b.reconcile(); b.asked != 1 {
		t.Fatalf("GitHub asked %d times", b.asked)
	}
	b.snapshot.Counted, b.snapshot.Statistics.IdleRunners = b.now, 1
	if b.reconcile(); len(b.suspects) != 2 || b.wasOnline {
		t.Errorf("doubted %v (was online: %t)", b.suspects, b.wasOnline)
	}
}

// The message about a completion can be lost, and the container can hang.
func TestARunnerThatIsBusyOnlyByOurAccountIsDoubted(t *testing.T) {
	b := newBench(t)
	b.start()
	b.snapshot.Assigned = 1
	b.reconcile()
	r := b.runners()[0]
	b.run(r)
	b.snapshot.Started = map[string]scaleset.JobEvent{r.Name: {Type: scaleset.JobStarted, JobID: "j", RunnerName: r.Name, At: b.now}}
	b.now = b.now.Add(poolstatus.Settle)
	b.snapshot.Counted, b.snapshot.Statistics.BusyRunners = b.now, 1
	b.reconcile()
	if len(b.suspects) != 0 {
		t.Errorf("doubted %v", b.suspects)
	}
	b.snapshot.Statistics.BusyRunners = 0
	b.reconcile()
	if !slices.Equal(b.suspects, []string{r.Name}) {
		t.Errorf("doubted %v", b.suspects)
	}
}

// GitHub lost the scale set in which a runner with a job is registered, so the end of the job is not reported.
func TestARunnerWithAJobOfAFormerScaleSetIsDoubted(t *testing.T) {
	b := newBench(t)
	b.start()
	b.snapshot.Assigned = 1
	b.reconcile()
	r := b.runners()[0]
	b.run(r)
	b.snapshot.Started = map[string]scaleset.JobEvent{r.Name: {Type: scaleset.JobStarted, JobID: "j", RunnerName: r.Name, At: b.now}}
	b.reconcile()
	set := &v1alpha1.RunnerScaleSet{}
	must(t, b.Client.Get(t.Context(), key, set))
	set.Status.ID = 8
	must(t, b.Client.Status().Update(t.Context(), set))
	b.reconcile()
	if len(b.suspects) != 0 {
		t.Errorf("doubted at once: %v", b.suspects)
	}
	b.now = b.now.Add(poolstatus.Settle)
	b.reconcile()
	if !slices.Equal(b.suspects, []string{r.Name}) {
		t.Errorf("doubted %v", b.suspects)
	}
}

// A server that does not count runners cannot show that one is missing.
func TestWhereGitHubMayNotCountRegistrationsAreLookedUp(t *testing.T) {
	b := newBench(t)
	b.snapshot.Statistics.RegisteredRunners = 0
	b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Idle = new(int32(1)) })
	b.start()
	b.reconcile()
	b.run(b.runners()[0])
	b.now = b.now.Add(v1alpha1.DefaultConnectDeadline)
	b.snapshot.Counted = b.now
	b.reconcile()
	if len(b.suspects) != 1 || len(b.ended) != 0 {
		t.Errorf("doubted %v, given up %v", b.suspects, b.ended)
	}
}

func TestARunnerThatGitHubSawOnceIsDoubtedAsOneThatWasOnline(t *testing.T) {
	b := newBench(t)
	b.change(func(p *v1alpha1.RunnerPool) { p.Spec.Scale.Idle = new(int32(1)) })
	b.start()
	b.reconcile()
	b.run(b.runners()[0])
	b.now = b.now.Add(v1alpha1.DefaultConnectDeadline)
	b.snapshot.Counted, b.snapshot.Statistics.IdleRunners = b.now, 1
	b.reconcile()
	b.snapshot.Statistics.IdleRunners = 0
	b.reconcile()
	if len(b.suspects) != 1 || !b.wasOnline || len(b.ended) != 0 {
		t.Errorf("doubted %v (was online: %v), given up %v", b.suspects, b.wasOnline, b.ended)
	}
}

// A pool with as many jobs as its max allows reports that, and how many wait. The condition does not change between two
// jobs.
func TestAFullPoolSaysHowManyJobsWait(t *testing.T) {
	b := newBench(t)
	b.start()
	for _, step := range []struct {
		assigned, available int
		full                bool
		waiting             int32
		why                 string
	}{
		{4, 3, false, 0, "4 jobs"},
		{5, 3, true, 3, "5 jobs: full (max 5); 3 more wait on GitHub"},
		{4, 3, true, 3, "4 jobs: full (max 5); 3 more wait on GitHub"},
		{5, 0, false, 0, "5 jobs"},
		{4, 3, false, 0, "4 jobs"},
	} {
		b.snapshot.Assigned, b.snapshot.Statistics.AssignedJobs, b.snapshot.Statistics.AvailableJobs = step.assigned, step.assigned, step.available
		b.now = b.now.Add(time.Minute)
		b.reconcile()
		s := b.pool().Status
		if full := conditions.IsTrue(b.pool(), v1alpha1.SaturatedCondition); full != step.full || s.JobsWaiting != step.waiting || s.Decision.Reason != step.why {
			t.Errorf("%+v: full %t, %d wait: %s", step, full, s.JobsWaiting, s.Decision.Reason)
		}
	}
}
