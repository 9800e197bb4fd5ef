// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// FieldOwner is the field manager of everything the controllers apply.
const FieldOwner = client.FieldOwner("corral")

// Apply creates or updates an object by server-side apply. It takes ownership of fields that other field managers own. It
// ignores the status of a typed object.
func Apply(ctx context.Context, c client.Client, obj client.Object) error {
	return ApplyAs(ctx, c, obj, FieldOwner)
}

// ApplyAs is Apply with another field manager. An unstructured object then contains the answer of the API server.
func ApplyAs(ctx context.Context, c client.Client, obj client.Object, owner client.FieldOwner) error {
	u, err := toUnstructured(c, obj)
	if err != nil {
		return fmt.Errorf("encoding %T: %w", obj, err)
	}
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), owner, client.ForceOwnership); err != nil {
		return fmt.Errorf("applying %s %s: %w", u.GetKind(), client.ObjectKeyFromObject(u), err)
	}
	return nil
}

func toUnstructured(c client.Client, obj client.Object) (*unstructured.Unstructured, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return u, nil
	}
	gvk, err := apiutil.GVKForObject(obj, c.Scheme())
	if err != nil {
		return nil, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(gvk)
	unstructured.RemoveNestedField(u.Object, "status")
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	return u, nil
}

// PutConfigMap creates a ConfigMap if version is empty. Otherwise it sets the labels, annotations and data of an existing
// ConfigMap, which must still have this resource version. It keeps the keys that config does not contain.
func PutConfigMap(ctx context.Context, c client.Client, config *corev1.ConfigMap, version string) error {
	if version == "" {
		if err := c.Create(ctx, config, FieldOwner); err != nil {
			return fmt.Errorf("making ConfigMap %s: %w", config.Name, err)
		}
		return nil
	}
	held := corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{ResourceVersion: version, Labels: config.Labels, Annotations: config.Annotations},
		Data:       config.Data, BinaryData: config.BinaryData,
	}
	patch, err := json.Marshal(held)
	if err != nil {
		return fmt.Errorf("encoding ConfigMap %s: %w", config.Name, err)
	}
	if err := c.Patch(ctx, config, client.RawPatch(types.MergePatchType, patch), FieldOwner); err != nil {
		return fmt.Errorf("writing ConfigMap %s: %w", config.Name, err)
	}
	return nil
}
