// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/cache"
)

func TestWhatNoControllerReadsIsNotCached(t *testing.T) {
	object := func() metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Name: "x", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}, Labels: map[string]string{"team": "web"},
			Annotations: map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}", "corral.dev/cache-holder": "r", "example.com/note": "n"},
		}
	}
	for name, tc := range map[string]struct {
		trim func(any) (any, error)
		want map[string]string
	}{
		"Corral's kinds": {Trim, map[string]string{"corral.dev/cache-holder": "r", "example.com/note": "n"}}, // policies read them
		"other kinds":    {TrimForeign, map[string]string{"corral.dev/cache-holder": "r"}},
	} {
		want := metav1.ObjectMeta{Name: "x", Labels: map[string]string{"team": "web"}, Annotations: tc.want}
		for range 2 { // applying it twice gives the same result
			got, err := tc.trim(&metav1.PartialObjectMetadata{ObjectMeta: object()})
			if err == nil {
				got, err = tc.trim(got)
			}
			if diff := cmp.Diff(&metav1.PartialObjectMetadata{ObjectMeta: want}, got); diff != "" || err != nil {
				t.Errorf("%s: %v\n%s", name, err, diff)
			}
		}
		plain, gone := &corev1.ConfigMap{}, cache.DeletedFinalStateUnknown{Key: "x"}
		if got, err := tc.trim(plain); err != nil || !cmp.Equal(got, any(plain)) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if got, err := tc.trim(gone); err != nil || !cmp.Equal(got, any(gone)) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestOfFluxsObjectsTheArtifactIsCached(t *testing.T) {
	artifact, conditions := map[string]any{"revision": "main@sha1:1", "url": "http://x"}, []any{map[string]any{"type": "Ready", "status": "True"}}
	for name, tc := range map[string]struct{ status, want any }{
		"ready":    {map[string]any{"artifact": map[string]any{"revision": "main@sha1:1", "url": "http://x", "metadata": map[string]any{"a": "b"}}, "conditions": conditions, "url": "y"}, map[string]any{"artifact": artifact, "conditions": conditions}},
		"without":  {nil, map[string]any{}},
		"no text":  {7, map[string]any{}},
		"artifact": {map[string]any{"artifact": "x"}, map[string]any{}},
	} {
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "spec": map[string]any{"url": "x"}, "status": tc.status,
			"metadata": map[string]any{"name": "x", "managedFields": []any{map[string]any{"manager": "kubectl"}}, "annotations": map[string]any{"example.com/note": "n"}},
		}}
		want := map[string]any{"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": map[string]any{"name": "x", "annotations": map[string]any{}}, "status": tc.want}
		for range 2 {
			if _, err := Trim(u); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(want, u.Object, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}
