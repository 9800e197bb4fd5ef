// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Trim leaves of an object what controllers read, as a cache.TransformFunc: all but what clients of the API server note about their writes. Of an
// object without a Go type, which is one of Flux's, it leaves where its artifact is and its conditions.
func Trim(obj any) (any, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		u.Object = map[string]any{"apiVersion": u.Object["apiVersion"], "kind": u.Object["kind"], "metadata": u.Object["metadata"], "status": artifactOf(u.Object["status"])}
		return TrimForeign(u)
	}
	return trim(obj, func(key string) bool { return key != corev1.LastAppliedConfigAnnotation })
}

// TrimForeign is Trim for kinds that aren't Corral's: of the annotations only Corral's are left.
func TrimForeign(obj any) (any, error) {
	return trim(obj, func(key string) bool { return strings.HasPrefix(key, v1alpha1.GroupVersion.Group+"/") })
}

func trim(obj any, isRead func(annotation string) bool) (any, error) {
	object, err := meta.Accessor(obj)
	if err != nil {
		return obj, nil //nolint:nilerr // it is a mark that an object is gone
	}
	object.SetManagedFields(nil)
	annotations := object.GetAnnotations()
	maps.DeleteFunc(annotations, func(key, _ string) bool { return !isRead(key) })
	object.SetAnnotations(annotations)
	return obj, nil
}

// artifactOf leaves of the status of an object of Flux what is watched. What isn't a status counts as none.
func artifactOf(status any) any {
	known, _ := status.(map[string]any)
	left := map[string]any{}
	if artifact, ok := known["artifact"].(map[string]any); ok {
		delete(artifact, "metadata")
		left["artifact"] = artifact
	}
	if conditions, ok := known["conditions"]; ok {
		left["conditions"] = conditions
	}
	return left
}
