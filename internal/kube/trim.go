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

// Trim is a cache.TransformFunc that removes everything that controllers do not read: managed fields and the last-applied
// annotation. For objects without a Go type, which are Flux sources, it keeps only the metadata, the artifact and the
// conditions.
func Trim(obj any) (any, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		u.Object = map[string]any{"apiVersion": u.Object["apiVersion"], "kind": u.Object["kind"], "metadata": u.Object["metadata"], "status": artifactOf(u.Object["status"])}
		return TrimForeign(u)
	}
	return trim(obj, func(key string) bool { return key != corev1.LastAppliedConfigAnnotation })
}

// TrimForeign is Trim for kinds that do not belong to Corral. It also removes all annotations except Corral's.
func TrimForeign(obj any) (any, error) {
	return trim(obj, func(key string) bool { return strings.HasPrefix(key, v1alpha1.GroupVersion.Group+"/") })
}

func trim(obj any, isRead func(annotation string) bool) (any, error) {
	object, err := meta.Accessor(obj)
	if err != nil {
		return obj, nil //nolint:nilerr // it marks an object that was deleted
	}
	object.SetManagedFields(nil)
	annotations := object.GetAnnotations()
	maps.DeleteFunc(annotations, func(key, _ string) bool { return !isRead(key) })
	object.SetAnnotations(annotations)
	return obj, nil
}

// artifactOf returns the parts of a Flux object's status that Corral uses. It treats an invalid status as empty.
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
