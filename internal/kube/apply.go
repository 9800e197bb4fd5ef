// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// FieldOwner is the field manager of everything the controllers apply.
const FieldOwner = client.FieldOwner("corral")

// Apply makes an object so by server-side apply, taking over fields that others
// hold. A typed object must not carry a status.
func Apply(ctx context.Context, c client.Client, obj client.Object) error {
	return ApplyAs(ctx, c, obj, FieldOwner)
}

// ApplyAs is Apply under another field manager. An unstructured object then holds
// the answer of the API server.
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
