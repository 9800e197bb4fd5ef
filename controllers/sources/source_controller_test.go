// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	"github.com/fluxcd/pkg/runtime/conditions"
	sourcev1 "github.com/fluxcd/source-controller/api/v1"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/gitsource"
	"github.com/corral-dev/corral/internal/kube"
)

// forge is a Git server and a compiler in one: it maps revisions to results, and records requests.
type forge struct {
	tip      string
	results  map[string]compile.Result
	err      error // of Resolve
	fetchErr error
	buildErr error

	auth    gitsource.Auth
	fetches int
	options compile.Options
	before  func() // called when a revision is fetched
}

func (f *forge) Resolve(_ context.Context, request gitsource.Request) (string, error) {
	f.auth = request.Auth
	return f.tip, f.err
}

func (f *forge) Fetch(context.Context, gitsource.Request) (gitsource.Checkout, error) {
	f.fetches++
	if f.before != nil {
		f.before()
	}
	return gitsource.Checkout{Revision: f.tip, FS: fstest.MapFS{"revision": {Data: []byte(f.tip)}}}, f.fetchErr
}

func (f *forge) Compile(_ context.Context, files fs.FS, options compile.Options) (compile.Result, error) {
	revision, err := fs.ReadFile(files, "revision")
	if err != nil {
		return compile.Result{}, err
	}
	f.options = options
	return f.results[string(revision)], f.buildErr
}

// world is a source called us in the namespace ci, with its environment.
type world struct {
	*forge
	t          *testing.T
	client     client.Client
	events     *events.FakeRecorder
	reconciler *Reconciler
	applyErr   map[string]error // by the name of the object
	answerErr  map[string]error // the same, for objects that are applied nevertheless
	applying   func(name string)
	deleteErr  error
	statusErr  error
}

func newWorld(t *testing.T, objects ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme, sourcev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{
		t: t, events: events.NewFakeRecorder(100), applyErr: map[string]error{}, answerErr: map[string]error{},
		forge: &forge{results: map[string]compile.Result{}},
	}
	builder := fake.NewClientBuilder().WithScheme(scheme)
	for _, i := range kube.Indexes("here") {
		builder.WithIndex(i.Object, i.Field, i.Values)
	}
	w.client = builder.WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.PoolSource{}, &v1alpha1.RunnerPool{}, &v1alpha1.GitHubConnection{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Apply: func(ctx context.Context, c client.WithWatch, o runtime.ApplyConfiguration, options ...client.ApplyOption) error {
				name := o.(interface{ GetName() string }).GetName()
				if w.applying != nil {
					w.applying(name)
				}
				if w.applyErr[name] != nil {
					return w.applyErr[name]
				}
				if err := c.Apply(ctx, o, options...); err != nil {
					return err
				}
				return w.answerErr[name]
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
				if w.deleteErr != nil {
					return w.deleteErr
				}
				return c.Delete(ctx, o, options...)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, name string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
				if w.statusErr != nil {
					return w.statusErr
				}
				return c.SubResource(name).Patch(ctx, o, patch, options...)
			},
		}).Build()
	w.reconciler = New(kube.Reporter{Client: w.client, Events: w.events}, w.client, nil, w.forge, nil, w.forge, Options{})
	return w
}

func us(change ...func(*v1alpha1.PoolSource)) *v1alpha1.PoolSource {
	source := &v1alpha1.PoolSource{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "us", UID: "uid-of-us", Generation: 1},
		Spec: v1alpha1.PoolSourceSpec{
			Git:           &v1alpha1.GitSource{URL: "https://example.com/pools.git"},
			Interval:      metav1.Duration{Duration: 10 * time.Minute},
			RetryInterval: &metav1.Duration{Duration: time.Minute},
		},
	}
	for _, c := range change {
		c(source)
	}
	return source
}

// push makes a revision with the objects the tip.
func (w *world) push(revision string, objects ...compile.Object) {
	w.tip = revision
	w.results[revision] = compile.Result{Objects: objects}
}

// pushBroken makes a revision with n diagnostics the tip.
func (w *world) pushBroken(revision string, n int) {
	w.tip = revision
	var diagnostics []v1alpha1.Diagnostic
	for i := range n {
		diagnostics = append(diagnostics, v1alpha1.Diagnostic{File: "a.cue", Line: int32(i + 1), Column: 2, Path: "pools.a", Message: "wrong"})
	}
	w.results[revision] = compile.Result{Diagnostics: diagnostics, Objects: []compile.Object{pool("broken")}}
}

func (w *world) reconcile() ctrl.Result {
	w.t.Helper()
	result, err := w.reconciler.Reconcile(w.t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(us())})
	if err != nil {
		w.t.Fatal(err)
	}
	return result
}

func (w *world) source() *v1alpha1.PoolSource {
	w.t.Helper()
	source := &v1alpha1.PoolSource{}
	if err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(us()), source); err != nil {
		w.t.Fatal(err)
	}
	return source
}

func (w *world) change(change func(*v1alpha1.PoolSource)) {
	w.t.Helper()
	source := w.source()
	change(source)
	if err := w.client.Update(w.t.Context(), source); err != nil {
		w.t.Fatal(err)
	}
}

// objects lists the existing objects and which source holds them.
func (w *world) objects() map[string]string {
	w.t.Helper()
	got := map[string]string{}
	pools, connections := &v1alpha1.RunnerPoolList{}, &v1alpha1.GitHubConnectionList{}
	for _, objects := range []client.ObjectList{pools, connections} {
		if err := w.client.List(w.t.Context(), objects); err != nil {
			w.t.Fatal(err)
		}
	}
	for _, o := range pools.Items {
		got["RunnerPool "+o.Name] = o.Labels[v1alpha1.SourceLabel]
	}
	for _, o := range connections.Items {
		got["GitHubConnection "+o.Name] = o.Labels[v1alpha1.SourceLabel]
	}
	return got
}

func (w *world) expectObjects(want map[string]string) {
	w.t.Helper()
	if diff := cmp.Diff(want, w.objects()); diff != "" {
		w.t.Error(diff)
	}
}

// expectReady checks the conditions, in short form: Ready's status and reason, and which of Stalled and Reconciling are
// true.
func (w *world) expectReady(want string, texts ...string) {
	w.t.Helper()
	source := w.source()
	ready := conditions.Get(source, v1alpha1.ReadyCondition)
	if ready == nil {
		w.t.Fatal("Ready is not set")
	}
	got := fmt.Sprintf("%s %s", ready.Status, ready.Reason)
	for _, abnormal := range []string{v1alpha1.StalledCondition, v1alpha1.ReconcilingCondition} {
		if conditions.IsTrue(source, abnormal) {
			got += " " + abnormal
		}
	}
	if got != want {
		w.t.Errorf("conditions: got %q, want %q: %s", got, want, ready.Message)
	}
	for _, word := range texts {
		if !strings.Contains(ready.Message, word) {
			w.t.Errorf("message lacks %q: %s", word, ready.Message)
		}
	}
	if source.Status.ObservedGeneration != source.Generation {
		w.t.Errorf("observedGeneration %d, want %d", source.Status.ObservedGeneration, source.Generation)
	}
}

// newEvents returns the events since the last call, as "TYPE REASON".
func (w *world) newEvents() []string {
	var got []string
	for {
		select {
		case e := <-w.events.Events:
			got = append(got, strings.Join(strings.SplitN(e, " ", 3)[:2], " "))
		default:
			return got
		}
	}
}

func TestARevisionIsApplied(t *testing.T) {
	w := newWorld(t, us(func(s *v1alpha1.PoolSource) { s.Spec.Path, s.Spec.Tags = "pools", map[string]string{"env": "prod"} }))
	w.push("main@sha1:1", pool("a"), pool("b"), connection("main"))
	w.before = func() {
		s := w.source()
		if ready := conditions.Get(s, v1alpha1.ReadyCondition); ready == nil || ready.Reason != v1alpha1.ProgressingReason || !conditions.IsReconciling(s) {
			t.Errorf("before a new revision is fetched: %v", s.Status.Conditions)
		}
	}
	if got := w.reconcile(); got.RequeueAfter != 10*time.Minute {
		t.Errorf("looks again after %s", got.RequeueAfter)
	}
	w.expectReady("True Succeeded", "Applied revision main@sha1:1: 2 pools, 1 connection")
	w.expectObjects(map[string]string{"RunnerPool a": "us", "RunnerPool b": "us", "GitHubConnection main": "us"})
	status := w.source().Status
	if status.LastAppliedRevision != "main@sha1:1" || status.LastAttemptedRevision != "main@sha1:1" || len(status.Inventory.Entries) != 3 {
		t.Errorf("status: %+v", status)
	}
	if diff := cmp.Diff(compile.Options{Path: "pools", Tags: map[string]string{"env": "prod"}, PolicyName: "us"}, w.options); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"Normal Succeeded"}, w.newEvents()); diff != "" {
		t.Error(diff)
	}
}

func TestAnUnchangedRevisionIsNeitherFetchedNorTold(t *testing.T) {
	w := newWorld(t, us())
	w.push("main@sha1:1", pool("a"))
	w.reconcile()
	w.newEvents()
	before := w.source().ResourceVersion
	w.reconcile()
	if w.fetches != 1 {
		t.Errorf("fetched %d times", w.fetches)
	}
	if diff := cmp.Diff([]string(nil), w.newEvents()); diff != "" {
		t.Error(diff)
	}
	if after := w.source().ResourceVersion; after != before {
		t.Errorf("status written: %s, then %s", before, after)
	}
}

func TestAChangedSpecIsCompiledAnew(t *testing.T) {
	changes := map[string]func(*v1alpha1.PoolSource){
		"path": func(s *v1alpha1.PoolSource) { s.Spec.Path = "other" },
		"tags": func(s *v1alpha1.PoolSource) { s.Spec.Tags = map[string]string{"a": "b"} },
		"url":  func(s *v1alpha1.PoolSource) { s.Spec.Git.URL = "https://example.org/x.git" },
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, us())
			w.push("main@sha1:1", pool("a"))
			w.reconcile()
			w.change(change)
			w.reconcile()
			if w.fetches != 2 {
				t.Errorf("fetched %d times", w.fetches)
			}
		})
	}
}

func TestABrokenRevisionChangesNothing(t *testing.T) {
	w := newWorld(t, us())
	w.push("main@sha1:1", pool("a"))
	w.reconcile()
	w.newEvents()
	w.pushBroken("main@sha1:2", 30)
	if got := w.reconcile(); got.RequeueAfter != 10*time.Minute {
		t.Errorf("looks again after %s", got.RequeueAfter)
	}
	w.expectReady("False BuildFailed Stalled", "a.cue:1:2: pools.a: wrong\n", "and 25 more\n",
		"Corral applied nothing of revision main@sha1:2; main@sha1:1 stays in force")
	w.expectObjects(map[string]string{"RunnerPool a": "us"})
	status := w.source().Status
	if status.LastAppliedRevision != "main@sha1:1" || status.LastAttemptedRevision != "main@sha1:2" || len(status.Diagnostics) != 20 {
		t.Errorf("status: %+v", status)
	}
	if diff := cmp.Diff([]string{"Warning BuildFailed"}, w.newEvents()); diff != "" {
		t.Error(diff)
	}

	w.reconcile()
	if w.fetches != 2 || len(w.newEvents()) != 0 {
		t.Errorf("a revision known to be broken: fetched %d times", w.fetches)
	}
	w.change(func(s *v1alpha1.PoolSource) {
		s.Annotations = map[string]string{fluxmeta.ReconcileRequestAnnotation: "now"}
	})
	w.reconcile()
	if w.fetches != 3 {
		t.Errorf("another look was asked for: fetched %d times", w.fetches)
	}

	w.push("main@sha1:3", pool("a"), pool("b"))
	w.reconcile()
	w.expectReady("True Succeeded")
	if left := w.source().Status.Diagnostics; len(left) != 0 {
		t.Errorf("diagnostics stay: %v", left)
	}
}

func TestARefusalSaysWhatStaysInForce(t *testing.T) {
	const r1, r2 = "main@sha1:1", "main@sha1:2"
	for name, tc := range map[string]struct{ last, revision, want string }{
		"the first":                 {"", r1, "Corral applied nothing of revision main@sha1:1"},
		"a later one":               {r1, r2, "Corral applied nothing of revision main@sha1:2; main@sha1:1 stays in force"},
		"the one in force":          {r1, r1, "The objects of revision main@sha1:1 that Corral applied stay in force"},
		"one that is not known yet": {r1, "", "The objects that Corral applied before stay in force"},
		"the first, not known yet":  {"", "", "Corral applied nothing"},
	} {
		source := us(func(s *v1alpha1.PoolSource) { s.Status.LastAppliedRevision = tc.last })
		if got := inForce(source, tc.revision).String(); got != tc.want {
			t.Errorf("%s: got %q, want %q", name, got, tc.want)
		}
	}
}

func TestThatPoolsAreAppliedIsSaidOncePoliciesAreInForce(t *testing.T) {
	w := newWorld(t, us())
	w.push("main@sha1:1", declared(policyKind, "us"), pool("a"))
	w.reconcile()
	w.expectReady("Unknown Progressing Reconciling", "RunnerPolicy us of revision main@sha1:1 is being loaded")
	p := &v1alpha1.RunnerPolicy{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: "ci", Name: "us"}, p); err != nil {
		t.Fatal(err)
	}
	p.Status.ObservedGeneration = p.Generation
	conditions.MarkTrue(p, v1alpha1.ReadyCondition, v1alpha1.SucceededReason, "loaded")
	if err := w.client.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	w.applying = func(name string) {
		if name != "a" {
			return
		}
		if ready := conditions.GetMessage(w.source(), v1alpha1.ReadyCondition); ready != "applying the pools of revision main@sha1:1" {
			t.Errorf("while the pool is applied: %s", ready)
		}
	}
	w.reconcile()
	w.expectReady("True Succeeded")
}

func TestWhatBecameOfTheOtherObjectsIsSaid(t *testing.T) {
	for name, tc := range map[string]struct {
		bad     []string
		objects []compile.Object
		want    string
	}{
		"all are refused":     {[]string{"a", "b"}, []compile.Object{pool("a"), pool("b")}, "\nCorral applied nothing of revision main@sha1:1 and pruned nothing"},
		"a policy is refused": {[]string{"us"}, []compile.Object{connection("main"), declared(policyKind, "us"), pool("a")}, "\nCorral applied no pools of revision main@sha1:1 because its policies are missing, and pruned nothing"},
		"one is refused":      {[]string{"a"}, []compile.Object{pool("a"), pool("b")}, "\nCorral applied the other objects of revision main@sha1:1 and pruned nothing"},
	} {
		w := newWorld(t, us())
		w.push("main@sha1:1", tc.objects...)
		for _, bad := range tc.bad {
			w.applyErr[bad] = apierrors.NewInvalid(schema.GroupKind{}, bad, nil)
		}
		w.reconcile()
		if got := conditions.GetMessage(w.source(), v1alpha1.ReadyCondition); !strings.HasSuffix(got, tc.want) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestTheGaugeSaysOfEachSourceWhetherItIsReadyAndWhyNot(t *testing.T) {
	w := newWorld(t, us())
	readyGauge.Vec.(*prometheus.GaugeVec).Reset()
	measured := func(want string) {
		t.Helper()
		text := ""
		if want != "" {
			text = "# HELP corral_source_ready Whether a PoolSource is ready (1) or not (0), and the reason.\n# TYPE corral_source_ready gauge\n" + want + "\n"
		}
		w.reconcile()
		if err := testutil.CollectAndCompare(readyGauge, strings.NewReader(text)); err != nil {
			t.Error(err)
		}
	}
	w.push("main@sha1:1", pool("a"))
	measured(`corral_source_ready{namespace="ci",reason="Succeeded",source="us"} 1`)
	w.pushBroken("main@sha1:2", 1)
	measured(`corral_source_ready{namespace="ci",reason="BuildFailed",source="us"} 0`)
	if err := w.client.Delete(t.Context(), w.source()); err != nil {
		t.Fatal(err)
	}
	measured("")
}

func TestDiagnosticsAreOfTheRevisionAttemptedLast(t *testing.T) {
	w := newWorld(t, us())
	w.pushBroken("main@sha1:1", 1)
	w.reconcile()
	w.push("main@sha1:2", pool("a"))
	w.fetchErr = gitsource.ErrTooLarge
	w.reconcile()
	w.expectReady("False ArtifactFailed Stalled")
	if status := w.source().Status; status.LastAttemptedRevision != "main@sha1:2" || len(status.Diagnostics) > 0 {
		t.Errorf("status: %+v", status)
	}
}

func TestRequestedLookIsAcknowledged(t *testing.T) {
	w := newWorld(t, us(func(s *v1alpha1.PoolSource) {
		s.Annotations = map[string]string{fluxmeta.ReconcileRequestAnnotation: "now"}
	}))
	w.err = gitsource.ErrTimeout
	w.reconcile()
	if got := w.source().Status.LastHandledReconcileAt; got != "now" {
		t.Errorf("lastHandledReconcileAt: %q", got)
	}
}

func TestWhatKeepsARevisionFromBeingBuilt(t *testing.T) {
	withSecret := us(func(s *v1alpha1.PoolSource) { s.Spec.Git.SecretRef = &v1alpha1.LocalObjectReference{Name: "git"} })
	cases := map[string]struct {
		source *v1alpha1.PoolSource
		more   client.Object
		forge  forge
		want   string
		after  time.Duration
	}{
		"server does not answer":    {us(), nil, forge{err: gitsource.ErrTimeout}, "False ArtifactFailed Reconciling", time.Minute},
		"credentials refused":       {us(), nil, forge{err: gitsource.ErrAuthRefused}, "False ArtifactFailed Reconciling", time.Minute},
		"URL not allowed":           {us(), nil, forge{err: gitsource.ErrNotAllowed}, "False InvalidSpec Stalled", 10 * time.Minute},
		"fetch fails":               {us(), nil, forge{fetchErr: errors.New("reset")}, "False ArtifactFailed Reconciling", time.Minute},
		"repository too large":      {us(), nil, forge{fetchErr: gitsource.ErrTooLarge}, "False ArtifactFailed Stalled", 10 * time.Minute},
		"repository unusable":       {us(), nil, forge{fetchErr: gitsource.ErrUnusable}, "False ArtifactFailed Stalled", 10 * time.Minute},
		"compiler can't be started": {us(), nil, forge{buildErr: errors.New("no process")}, "False BuildFailed Reconciling", time.Minute},
		"no Secret":                 {withSecret, nil, forge{}, "False CredentialsMissing Reconciling", time.Minute},
		"Secret without a known key": {withSecret, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "git"}},
			forge{}, "False CredentialsMissing Reconciling", time.Minute},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{tc.source.DeepCopy()}
			if tc.more != nil {
				objects = append(objects, tc.more)
			}
			w := newWorld(t, objects...)
			*w.forge = tc.forge
			if got := w.reconcile(); got.RequeueAfter != tc.after {
				t.Errorf("looks again after %s", got.RequeueAfter)
			}
			w.expectReady(tc.want)
		})
	}
}

func TestWhatTheServiceAccountMayNotIsSaidOnceWithAdvice(t *testing.T) {
	refusal := func(why string) error {
		return apierrors.NewForbidden(schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "runnerpools"}, "a", errors.New(why))
	}
	const applied = "\nCorral applied the other objects of revision main@sha1:1 and pruned nothing\n"
	for why, want := range map[string]string{
		"User x cannot patch resource": `: runnerpools.corral.dev "a" is forbidden: User x cannot patch resource` + applied + "Bind a role with this permission to ServiceAccount ci/corral, and check that the ServiceAccount exists: kubectl get serviceaccount -n ci corral",
		"cannot impersonate resource":  `: runnerpools.corral.dev "a" is forbidden: cannot impersonate resource` + applied + "The controller is not allowed to impersonate service accounts: set impersonation.enabled in the chart",
	} {
		w := newWorld(t, us(func(s *v1alpha1.PoolSource) { s.Spec.ServiceAccountName = "corral" }))
		w.reconciler.Impersonate = func(types.NamespacedName) (client.Client, error) { return w.client, nil }
		w.push("main@sha1:1", pool("a"), pool("b"))
		w.applyErr["a"] = refusal(why)
		if after := w.reconcile().RequeueAfter; after != rightsRetry {
			t.Errorf("looks again after %s", after)
		}
		w.expectReady("False AccessDenied Reconciling")
		if got := conditions.GetMessage(w.source(), v1alpha1.ReadyCondition); !strings.HasSuffix(got, want) || strings.Count(got, "is forbidden") != 1 {
			t.Errorf("got %s", got)
		}
	}
}

func TestWhoseNameOfAServiceAccountIsNone(t *testing.T) {
	for named, want := range map[string]string{"no/name": "spec.serviceAccountName: \"no/name\"", "": "--default-service-account of the controller: \"no:name\""} {
		w := newWorld(t, us(func(s *v1alpha1.PoolSource) { s.Spec.ServiceAccountName = named }))
		w.reconciler.DefaultServiceAccount = "no:name"
		w.reconcile()
		w.expectReady("False InvalidSpec Stalled", want)
	}
}

func TestAnAttemptThatFailedIsNeitherRepeatedAtOnceNorTheLast(t *testing.T) {
	for _, interval := range []time.Duration{-time.Second, 0, time.Nanosecond} {
		w := newWorld(t, us(func(s *v1alpha1.PoolSource) { s.Spec.RetryInterval = &metav1.Duration{Duration: interval} }))
		w.err = gitsource.ErrTimeout
		if after := w.reconcile().RequeueAfter; after != minRetry {
			t.Errorf("retryInterval %s: looks again after %s", interval, after)
		}
	}
}

func TestANameThatIsNoLabelIsRefused(t *testing.T) {
	source := &v1alpha1.PoolSource{ObjectMeta: metav1.ObjectMeta{Name: strings.Repeat("u", 64)}}
	if err := check(source); !kube.IsStalled(err) {
		t.Errorf("got %v", err)
	}
}

func TestASourceThatSaysNotWhereFromStalls(t *testing.T) {
	for name, spec := range map[string]v1alpha1.PoolSourceSpec{
		"neither":      {},
		"unknown kind": {SourceRef: &v1alpha1.SourceReference{Kind: "Archive", Name: "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, us(func(s *v1alpha1.PoolSource) { spec.Interval, s.Spec = s.Spec.Interval, spec }))
			w.reconcile()
			w.expectReady("False InvalidSpec Stalled", "set spec.git or spec.sourceRef")
		})
	}
}

func TestCredentialsComeFromTheSecret(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "git"}, Data: map[string][]byte{
		"username": []byte("git"), "password": []byte("secret"), "bearerToken": []byte("token"), "ca.crt": []byte("pem"),
	}}
	w := newWorld(t, secret, us(func(s *v1alpha1.PoolSource) { s.Spec.Git.SecretRef = &v1alpha1.LocalObjectReference{Name: "git"} }))
	w.push("main@sha1:1", pool("a"))
	w.reconcile()
	want := gitsource.Auth{Username: "git", Password: "secret", BearerToken: "token", CAPEM: []byte("pem")}
	if diff := cmp.Diff(want, w.auth); diff != "" {
		t.Error(diff)
	}
}

func TestTheProxyOfASource(t *testing.T) {
	for name, tc := range map[string]struct{ address, url, want, says string }{
		"with a password": {"http://proxy:3128", "https://git.example/pools", "http://corral:p%40ss@proxy:3128", ""},
		"no address":      {"proxy:3128", "https://git.example/pools", "", "False CredentialsMissing Reconciling"},
		"ssh":             {"http://proxy:3128", "ssh://git@git.example/pools", "", "False InvalidSpec Stalled"},
	} {
		t.Run(name, func(t *testing.T) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "proxy"}, Data: map[string][]byte{
				"address": []byte(tc.address), "username": []byte("corral"), "password": []byte("p@ss"),
			}}
			w := newWorld(t, secret, us(func(s *v1alpha1.PoolSource) {
				s.Spec.Git.URL, s.Spec.Git.ProxySecretRef = tc.url, &v1alpha1.LocalObjectReference{Name: "proxy"}
			}))
			w.push("main@sha1:1", pool("a"))
			w.reconcile()
			if tc.says != "" {
				w.expectReady(tc.says, "proxy")
			} else if w.auth.Proxy == nil || w.auth.Proxy.String() != tc.want {
				t.Errorf("the proxy is %v", w.auth.Proxy)
			}
		})
	}
}

func TestSuspended(t *testing.T) {
	w := newWorld(t, us())
	w.push("main@sha1:1", pool("a"))
	w.reconcile()
	w.change(func(s *v1alpha1.PoolSource) { s.Spec.Suspend = true })
	w.push("main@sha1:2", pool("a"), pool("b"))
	if got := w.reconcile(); got.RequeueAfter != 0 {
		t.Errorf("looks again after %s", got.RequeueAfter)
	}
	w.expectReady("False Suspended")
	w.expectObjects(map[string]string{"RunnerPool a": "us"})
}

func TestPrune(t *testing.T) {
	four := []compile.Object{pool("a"), pool("b"), pool("c"), connection("main")}
	cases := map[string]struct {
		source *v1alpha1.PoolSource
		then   []compile.Object
		ready  string
		want   map[string]string
	}{
		"what left is deleted": {us(), []compile.Object{pool("a"), pool("b")}, "True Succeeded",
			map[string]string{"RunnerPool a": "us", "RunnerPool b": "us"}},
		"without prune it stays": {us(func(s *v1alpha1.PoolSource) { no := false; s.Spec.Prune = &no }), []compile.Object{pool("a")}, "True Succeeded",
			map[string]string{"RunnerPool a": "us", "RunnerPool b": "us", "RunnerPool c": "us", "GitHubConnection main": "us"}},
		"too much is refused, and nothing is applied": {us(), []compile.Object{pool("a"), pool("new")}, "False PruneRefused Stalled",
			map[string]string{"RunnerPool a": "us", "RunnerPool b": "us", "RunnerPool c": "us", "GitHubConnection main": "us"}},
		"unless the annotation names the revision": {
			us(func(s *v1alpha1.PoolSource) {
				s.Annotations = map[string]string{v1alpha1.AllowPruneAnnotation: "main@sha1:2"}
			}),
			[]compile.Object{pool("a"), pool("new")}, "True Succeeded",
			map[string]string{"RunnerPool a": "us", "RunnerPool new": "us"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.source.DeepCopy())
			w.push("main@sha1:1", four...)
			w.reconcile()
			w.push("main@sha1:2", tc.then...)
			w.reconcile()
			w.expectReady(tc.ready)
			w.expectObjects(tc.want)
			if got := len(w.source().Status.Inventory.Entries); got != len(tc.want) {
				t.Errorf("inventory has %d entries", got)
			}
		})
	}
}

func TestWhatACommitRemovesIsToldInOneEvent(t *testing.T) {
	w := newWorld(t, us())
	w.push("main@sha1:1", pool("a"), pool("b"), pool("c"), pool("d"), connection("main"))
	w.reconcile()
	w.push("main@sha1:2", pool("a"), pool("c"))
	w.reconcile()
	for {
		select {
		case e := <-w.events.Events:
			if e == "Normal Pruned Revision main@sha1:2 removed 2 of 4 pools and 1 other object: RunnerPool b, RunnerPool d, GitHubConnection main" {
				return
			}
		default:
			t.Fatal("no event names the pools")
		}
	}
}

func TestRefusedPruneSaysHowToAllowIt(t *testing.T) {
	w := newWorld(t, us())
	w.push("main@sha1:1", pool("a"))
	w.reconcile()
	w.push("main@sha1:2", pool("b"))
	w.reconcile()
	w.expectReady("False PruneRefused Stalled", "remove 1 of 1 pools, more than half: a\n",
		"kubectl annotate poolsource -n ci us --overwrite corral.dev/allow-prune=main@sha1:2")
}

func TestAConnectionStaysUntilItsRunnersAreGone(t *testing.T) {
	scaleSet := &v1alpha1.RunnerScaleSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "b"}}
	scaleSet.Spec.ConnectionRef.Name = "main"
	w := newWorld(t, us(), scaleSet)
	w.push("main@sha1:1", pool("a"), pool("b"), connection("main"), connection("unused"))
	w.reconcile()
	w.push("main@sha1:2", pool("a"))
	if got := w.reconcile(); got.RequeueAfter != stillNeeded {
		t.Errorf("looks again after %s", got.RequeueAfter)
	}
	w.expectReady("True Succeeded", "GitHubConnection main was removed from the source and is kept until")
	w.expectObjects(map[string]string{"RunnerPool a": "us", "GitHubConnection main": "us"})
	if err := w.client.Delete(t.Context(), scaleSet); err != nil {
		t.Fatal(err)
	}
	w.reconcile()
	w.expectObjects(map[string]string{"RunnerPool a": "us"})
}

func TestAFailedDeletionIsNotForgotten(t *testing.T) {
	w := newWorld(t, us())
	w.push("main@sha1:1", pool("a"), pool("b"))
	w.reconcile()
	w.push("main@sha1:2", pool("a"))
	w.deleteErr = errors.New("try later")
	w.reconcile()
	w.expectReady("False PruneFailed Reconciling", "RunnerPool b: try later")
	status := w.source().Status
	if len(status.Inventory.Entries) != 2 || status.LastAppliedRevision != "main@sha1:1" {
		t.Errorf("status: %+v", status)
	}
	w.deleteErr = nil
	w.reconcile()
	w.expectReady("True Succeeded")
	w.expectObjects(map[string]string{"RunnerPool a": "us"})
}

func TestOneBadObjectDoesNotStopTheOthers(t *testing.T) {
	kind := schema.GroupKind{Group: "corral.dev", Kind: poolKind}
	cases := map[string]struct {
		err   error
		ready string
		after time.Duration
	}{
		"for good":      {apierrors.NewInvalid(kind, "b", nil), "False ApplyFailed Stalled", 10 * time.Minute},
		"for the while": {apierrors.NewServiceUnavailable("busy"), "False ApplyFailed Reconciling", time.Minute},
		"by a quota": {
			apierrors.NewForbidden(schema.GroupResource{Group: kind.Group, Resource: "runnerpools"}, "b", errors.New("exceeded quota: pools")),
			"False ApplyFailed Reconciling", time.Minute,
		},
		"by a webhook's server that is not there": {apierrors.NewInternalError(errors.New("failed calling webhook")), "False ApplyFailed Reconciling", time.Minute},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, us())
			w.push("main@sha1:1", pool("a"), pool("gone"))
			w.reconcile()
			w.applyErr["b"] = tc.err
			w.push("main@sha1:2", pool("a"), pool("b"), pool("c"))
			if got := w.reconcile(); got.RequeueAfter != tc.after {
				t.Errorf("looks again after %s", got.RequeueAfter)
			}
			w.expectReady(tc.ready, "b.cue:3:5: RunnerPool b: ", "pruned nothing")
			w.expectObjects(map[string]string{"RunnerPool a": "us", "RunnerPool c": "us", "RunnerPool gone": "us"})
			status := w.source().Status
			if status.LastAppliedRevision != "main@sha1:1" || len(status.Inventory.Entries) != 3 {
				t.Errorf("status: %+v", status)
			}
			delete(w.applyErr, "b")
			w.reconcile()
			w.expectReady("True Succeeded")
			w.expectObjects(map[string]string{"RunnerPool a": "us", "RunnerPool b": "us", "RunnerPool c": "us"})
		})
	}
}

func TestHandMadeObjectsAreTakenOverAndTold(t *testing.T) {
	byHand := &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "a"}}
	w := newWorld(t, us(), byHand)
	w.push("main@sha1:1", pool("a"))
	w.reconcile()
	w.reconcile()
	w.expectObjects(map[string]string{"RunnerPool a": "us"})
	if diff := cmp.Diff([]string{"Normal Adopted", "Normal Succeeded"}, w.newEvents()); diff != "" {
		t.Error(diff)
	}
}

func TestTheInventoryIsRebuiltFromLabels(t *testing.T) {
	w := newWorld(t, us())
	w.push("main@sha1:1", pool("a"), pool("b"))
	w.reconcile()
	source := w.source()
	source.Status = v1alpha1.PoolSourceStatus{}
	if err := w.client.Status().Update(t.Context(), source); err != nil {
		t.Fatal(err)
	}
	w.err = gitsource.ErrTimeout
	w.reconcile()
	if got := len(w.source().Status.Inventory.Entries); got != 2 {
		t.Errorf("inventory has %d entries", got)
	}
	w.err = nil
	w.push("main@sha1:2", pool("a"))
	w.reconcile()
	w.expectObjects(map[string]string{"RunnerPool a": "us"})
}

func TestOwnerReferencesFollowTheDeletionPolicy(t *testing.T) {
	w := newWorld(t, us(func(s *v1alpha1.PoolSource) { s.Spec.DeletionPolicy = v1alpha1.DeletionDelete }))
	w.push("main@sha1:1", pool("a"))
	w.reconcile()
	owners := func() []metav1.OwnerReference {
		p := &v1alpha1.RunnerPool{}
		if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: "ci", Name: "a"}, p); err != nil {
			t.Fatal(err)
		}
		return p.OwnerReferences
	}
	want := []metav1.OwnerReference{{APIVersion: "corral.dev/v1alpha1", Kind: "PoolSource", Name: "us", UID: "uid-of-us"}}
	if diff := cmp.Diff(want, owners()); diff != "" {
		t.Error(diff)
	}
	// The policy applies to existing objects, whatever the result of the revision.
	w.pushBroken("main@sha1:2", 1)
	w.change(func(s *v1alpha1.PoolSource) { s.Spec.DeletionPolicy = v1alpha1.DeletionOrphan })
	w.reconcile()
	if diff := cmp.Diff([]metav1.OwnerReference(nil), owners()); diff != "" {
		t.Error(diff)
	}
}

func TestAConnectionOutlivesItsSourceWhileItIsNeeded(t *testing.T) {
	scaleSet := &v1alpha1.RunnerScaleSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "a"}}
	scaleSet.Spec.ConnectionRef.Name = "main"
	for policy, then := range map[v1alpha1.DeletionPolicy]map[string]string{
		v1alpha1.DeletionDelete: {"RunnerPool a": "us"}, // for garbage collection
		v1alpha1.DeletionOrphan: {"RunnerPool a": "us", "GitHubConnection main": "us"},
	} {
		byHand := &v1alpha1.GitHubConnection{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "by-hand"}}
		w := newWorld(t, us(func(s *v1alpha1.PoolSource) { s.Spec.DeletionPolicy = v1alpha1.DeletionDelete }), scaleSet.DeepCopy(), byHand)
		w.push("main@sha1:1", pool("a"), connection("main"))
		w.reconcile()
		w.change(func(s *v1alpha1.PoolSource) { s.Spec.DeletionPolicy, s.Spec.Suspend = policy, true })
		w.reconcile()
		held := &v1alpha1.GitHubConnection{}
		if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: "ci", Name: "main"}, held); err != nil || len(held.OwnerReferences) > 0 {
			t.Errorf("%s: owners %v: %v", policy, held.OwnerReferences, err)
		}
		if err := w.client.Delete(t.Context(), w.source()); err != nil {
			t.Fatal(err)
		}
		after := w.reconcile().RequeueAfter
		if isWaiting := policy == v1alpha1.DeletionDelete; (after == stillNeeded) != isWaiting {
			t.Errorf("%s: looks again after %s", policy, after)
		}
		w.expectObjects(map[string]string{"RunnerPool a": "us", "GitHubConnection main": "us", "GitHubConnection by-hand": ""})
		if err := w.client.Delete(t.Context(), scaleSet.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		w.reconcile()
		then["GitHubConnection by-hand"] = ""
		w.expectObjects(then)
	}
}

func TestASourceThatIsBeingDeletedOrGoneIsLeftAlone(t *testing.T) {
	deleted := us(func(s *v1alpha1.PoolSource) {
		now := metav1.Unix(1, 0)
		s.DeletionTimestamp, s.Finalizers = &now, []string{"example.com/other"}
	})
	for name, w := range map[string]*world{"being deleted": newWorld(t, deleted), "gone": newWorld(t)} {
		w.push("main@sha1:1", pool("a"))
		w.reconcile()
		if len(w.objects()) != 0 {
			t.Errorf("%s: applied %v", name, w.objects())
		}
	}
}

func TestSpread(t *testing.T) {
	cases := map[string]struct {
		percent int
		chance  float64
		want    time.Duration
	}{
		"off":      {0, 1, 100 * time.Second},
		"earliest": {10, 0, 90 * time.Second},
		"middle":   {10, 0.5, 100 * time.Second},
		"latest":   {10, 1, 110 * time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := spread(100*time.Second, tc.percent, tc.chance); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// While another source waits for a server that does not answer, this one neither waits nor reports anything new.
func TestAServerThatDidNotAnswerIsAskedInTurn(t *testing.T) {
	w := newWorld(t, us())
	w.err = fmt.Errorf("asking: %w", gitsource.ErrTimeout)
	w.reconcile()
	const late = "False ArtifactFailed Reconciling"
	w.expectReady(late, "cannot fetch https://example.com/pools.git: asking: timed out (spec.timeout is 1m0s)")
	w.newEvents()
	w.err = nil
	w.push("r1", pool("linux"))
	err := w.reconciler.hosts.ask("ci", us().Spec.Git.URL, func() error {
		if result := w.reconcile(); result.RequeueAfter != busyRetry {
			t.Errorf("looks again after %s", result.RequeueAfter)
		}
		w.expectReady(late, "timed out (spec.timeout is 1m0s)")
		return nil
	})
	if err != nil || len(w.newEvents()) > 0 {
		t.Errorf("asking: %v; told again", err)
	}
	w.reconcile()
	w.expectReady("True Succeeded")
}
