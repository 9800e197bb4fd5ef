// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"testing"

	"github.com/google/go-cmp/cmp"
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
		for range 2 { // it may be called with what it returned
			got, err := tc.trim(&metav1.PartialObjectMetadata{ObjectMeta: object()})
			if err == nil {
				got, err = tc.trim(got)
			}
			if diff := cmp.Diff(&metav1.PartialObjectMetadata{ObjectMeta: want}, got); diff != "" || err != nil {
				t.Errorf("%s: %v\n%s", name, err, diff)
			}
		}
		u := &unstructured.Unstructured{Object: map[string]any{}}
		u.SetAnnotations(object().Annotations)
		u.SetManagedFields(object().ManagedFields)
		if _, err := tc.trim(u); err != nil || !cmp.Equal(u.GetAnnotations(), tc.want) || u.GetManagedFields() != nil {
			t.Errorf("%s: %v, %v", name, u.Object, err)
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
