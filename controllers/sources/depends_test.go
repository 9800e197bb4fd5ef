// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"testing"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"
	"github.com/fluxcd/pkg/runtime/conditions"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// base returns a ready source of another repository.
func base(change ...func(*v1alpha1.PoolSource)) *v1alpha1.PoolSource {
	s := us(append([]func(*v1alpha1.PoolSource){func(s *v1alpha1.PoolSource) {
		s.Name, s.UID, s.Spec.Git.URL = "base", "uid-of-base", "https://example.com/base.git"
		s.Status.ObservedGeneration, s.Status.LastAppliedRevision = 1, "main@sha1:base"
		conditions.MarkTrue(s, v1alpha1.ReadyCondition, v1alpha1.SucceededReason, "fine")
	}}, change...)...)
	return s
}

func dependingOn(dependencies ...fluxmeta.NamespacedObjectReference) *v1alpha1.PoolSource {
	return us(func(s *v1alpha1.PoolSource) { s.Spec.DependsOn = dependencies })
}

func TestASourceWaitsForWhatItDependsOn(t *testing.T) {
	onBase := fluxmeta.NamespacedObjectReference{Name: "base"}
	unready := func(s *v1alpha1.PoolSource) {
		conditions.MarkFalse(s, v1alpha1.ReadyCondition, v1alpha1.BuildFailedReason, "a.cue:1:2: wrong\nand more")
	}
	onUs := func(s *v1alpha1.PoolSource) { s.Spec.DependsOn = []fluxmeta.NamespacedObjectReference{{Name: "us"}} }
	twin := func(s *v1alpha1.PoolSource) { s.Spec.Git.URL = us().Spec.Git.URL }
	progressing := func(s *v1alpha1.PoolSource) {
		conditions.MarkUnknown(s, v1alpha1.ReadyCondition, v1alpha1.ProgressingReason, "fetching and compiling revision main@sha1:2")
	}
	const waits, passes, goes = "False DependencyNotReady Reconciling", "Unknown Progressing Reconciling", "True Succeeded"
	cases := map[string]struct {
		on   fluxmeta.NamespacedObjectReference
		base *v1alpha1.PoolSource
		want string
		text string
	}{
		"it is ready":                            {onBase, base(), goes, ""},
		"it is not there":                        {onBase, nil, waits, "PoolSource ci/base not found"},
		"it is not ready":                        {onBase, base(unready), waits, "PoolSource ci/base is not ready: a.cue:1:2: wrong"},
		"it is being looked at":                  {onBase, base(progressing), passes, "PoolSource ci/base is not ready: fetching and compiling revision main@sha1:2"},
		"it was never looked at":                 {onBase, base(func(s *v1alpha1.PoolSource) { s.Status.Conditions = nil }), passes, "is not ready"},
		"it has changed":                         {onBase, base(func(s *v1alpha1.PoolSource) { s.Generation = 2 }), passes, "has not been reconciled since"},
		"the same repository, an older revision": {onBase, base(twin), passes, "has not applied revision main@sha1:1 yet"},
		"the same repository, this revision": {
			onBase, base(twin, func(s *v1alpha1.PoolSource) { s.Status.LastAppliedRevision = "main@sha1:1" }), goes, "",
		},
		"itself": {fluxmeta.NamespacedObjectReference{Name: "us"}, nil, "False DependencyNotReady Stalled", "refers to the source itself"},
		"a circle": {
			onBase, base(unready, onUs), "False DependencyNotReady Stalled", "ci/us → ci/base → ci/us",
		},
		"a circle of new sources": {
			onBase, base(onUs, func(s *v1alpha1.PoolSource) { s.Status.Conditions = nil }), "False DependencyNotReady Stalled", "ci/us → ci/base → ci/us",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			objects := []client.Object{dependingOn(tc.on)}
			if tc.base != nil {
				objects = append(objects, tc.base)
			}
			w := newWorld(t, objects...)
			w.push("main@sha1:1", pool("a"))
			result := w.reconcile()
			w.expectReady(tc.want, tc.text)
			if (tc.want == waits || tc.want == passes) && (result.RequeueAfter != dependencyRetry || w.fetches != 0) {
				t.Errorf("looks again after %s, fetched %d times", result.RequeueAfter, w.fetches)
			}
		})
	}
}

func TestSourcesOfOneArtifactAreTwins(t *testing.T) {
	older := base(func(s *v1alpha1.PoolSource) { s.Spec = ofFlux().Spec })
	w := newFluxWorld(t, repository(nil), older, ofFlux(func(s *v1alpha1.PoolSource) {
		s.Spec.DependsOn = []fluxmeta.NamespacedObjectReference{{Name: "base"}}
	}))
	w.push("main@sha1:1", pool("a"))
	w.stock(artifact("main@sha1:1"))
	w.reconcile()
	w.expectReady("Unknown Progressing Reconciling", "has not applied revision main@sha1:1 yet")
}

// The branch may move between resolving and fetching its revision.
func TestALaterRevisionThanTheResolvedOneWaitsForItsTwin(t *testing.T) {
	twin := base(func(s *v1alpha1.PoolSource) {
		s.Spec.Git.URL, s.Status.LastAppliedRevision = us().Spec.Git.URL, "main@sha1:1"
	})
	w := newWorld(t, dependingOn(fluxmeta.NamespacedObjectReference{Name: "base"}), twin)
	w.push("main@sha1:1", pool("a"))
	w.before = func() { w.push("main@sha1:2", pool("b")) }
	w.reconcile()
	w.expectReady("Unknown Progressing Reconciling", "has not applied revision main@sha1:2 yet")
	w.expectObjects(map[string]string{})
}

// A push to a dependency neither makes the source unready nor causes an event.
func TestADependencyOnItsWayLeavesWhatIsAppliedReady(t *testing.T) {
	w := newWorld(t, dependingOn(fluxmeta.NamespacedObjectReference{Name: "base"}), base())
	w.push("main@sha1:1", pool("a"))
	w.reconcile()
	w.newEvents()
	on := base()
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(on), on); err != nil {
		t.Fatal(err)
	}
	conditions.MarkUnknown(on, v1alpha1.ReadyCondition, v1alpha1.ProgressingReason, "fetching and compiling revision main@sha1:2")
	if err := w.client.Status().Update(t.Context(), on); err != nil {
		t.Fatal(err)
	}
	w.reconcile()
	w.expectReady("True Succeeded")
	w.push("main@sha1:2", pool("a"), pool("b"))
	w.reconcile()
	w.expectReady("Unknown Progressing Reconciling", "PoolSource ci/base is not ready")
	w.expectObjects(map[string]string{"RunnerPool a": "us"})
	if told := w.newEvents(); len(told) > 0 {
		t.Errorf("told %q", told)
	}
}

func TestWhatOfADependencyWakesASource(t *testing.T) {
	cases := map[string]struct {
		now  *v1alpha1.PoolSource
		want bool
	}{
		"a revision":                         {base(func(s *v1alpha1.PoolSource) { s.Status.LastAppliedRevision = "2" }), true},
		"its spec, which is looked at first": {base(func(s *v1alpha1.PoolSource) { s.Generation = 2 }), false},
		"a look that has begun": {base(func(s *v1alpha1.PoolSource) {
			conditions.MarkUnknown(s, v1alpha1.ReadyCondition, v1alpha1.ProgressingReason, "Fetching")
		}), false},
		"a label": {base(func(s *v1alpha1.PoolSource) { s.Labels = map[string]string{"a": "b"} }), false},
		"nothing": {base(), false},
		"its readiness": {base(func(s *v1alpha1.PoolSource) {
			conditions.MarkFalse(s, v1alpha1.ReadyCondition, v1alpha1.BuildFailedReason, "wrong")
		}), true},
	}
	before := base()
	for _, tc := range cases {
		for i := range tc.now.Status.Conditions {
			tc.now.Status.Conditions[i].LastTransitionTime = metav1.Time{}
		}
	}
	for i := range before.Status.Conditions {
		before.Status.Conditions[i].LastTransitionTime = metav1.Time{}
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := dependencyChanged.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: tc.now}); got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestIndices(t *testing.T) {
	s := ofFlux(func(s *v1alpha1.PoolSource) {
		s.Spec.DependsOn = []fluxmeta.NamespacedObjectReference{{Name: "base"}, {Namespace: "platform", Name: "base"}}
	})
	got := append(indexOrigin(s), indexDependencies(s)...)
	if diff := cmp.Diff([]string{"GitRepository ci/pools", "ci/base", "platform/base"}, got); diff != "" {
		t.Error(diff)
	}
	if got := indexOrigin(us()); got != nil {
		t.Errorf("a repository of Git is indexed as %v", got)
	}
}
