// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// +kubebuilder:rbac:groups="",resources=namespaces,resourceNames=kube-system,verbs=get

// ClusterID returns the UID of the namespace kube-system, which stays the same for the cluster's lifetime.
func ClusterID(ctx context.Context, config *rest.Config) (string, error) {
	c, err := client.New(config, client.Options{})
	if err != nil {
		return "", fmt.Errorf("making a client: %w", err)
	}
	ns := &corev1.Namespace{}
	if err := c.Get(ctx, client.ObjectKey{Name: "kube-system"}, ns); err != nil {
		return "", fmt.Errorf("reading the cluster's identity: %w", err)
	}
	return string(ns.UID), nil
}
