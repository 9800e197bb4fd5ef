// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/podspec"
)

// refusalRetry is the time to the next attempt to create a pod that the API server refused.
const refusalRetry = 10 * time.Second

// reconcilePod creates the runner's pod unless it has one or had one.
func (x *run) reconcilePod(ctx context.Context) error {
	if x.pod != nil || x.runner.Status.StartedAt != nil {
		return nil
	}
	revision := &appsv1.ControllerRevision{}
	key := client.ObjectKey{Namespace: x.runner.Namespace, Name: x.runner.Spec.Revision}
	if err := x.Client.Get(ctx, key, revision); err != nil {
		return fmt.Errorf("reading the template: %w", err)
	}
	pod, err := podspec.Build(x.identity(), revision.Data.Raw)
	if err != nil {
		return kube.Stall(v1alpha1.TemplateInvalidReason, "%w", err)
	}
	secrets, err := ConnectionSecrets(ctx, x.Client, x.runner.Namespace)
	if err != nil {
		return err
	}
	if err := podspec.CheckSecrets(pod, secrets); err != nil {
		return kube.Stall(v1alpha1.TemplateInvalidReason, "%w", err)
	}
	if err := controllerutil.SetControllerReference(x.runner, pod, x.Client.Scheme()); err != nil {
		return fmt.Errorf("owning the pod: %w", err)
	}
	switch err := x.Client.Create(ctx, pod); {
	case err == nil, apierrors.IsAlreadyExists(err):
		return nil // an existing one is ours from an earlier attempt, not in the cache yet
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err):
		return kube.Wait(v1alpha1.TemplateInvalidReason, refusalRetry, "creating the pod: %w", err)
	default:
		return fmt.Errorf("creating the pod: %w", err)
	}
}

// ConnectionSecrets lists the Secrets of a namespace that hold GitHub credentials.
func ConnectionSecrets(ctx context.Context, c client.Reader, namespace string) ([]string, error) {
	list := &v1alpha1.GitHubConnectionList{}
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing connections: %w", err)
	}
	var names []string
	for _, connection := range list.Items {
		if ref := connection.Spec.SecretRef; ref != nil {
			names = append(names, ref.Name)
		}
	}
	return names, nil
}
