// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package connections

import (
	"bytes"
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
)

// checkWebhook says that GitHub's events are refused for want of a secret. Pools keep working.
func (r *Reconciler) checkWebhook(ctx context.Context, conn *v1alpha1.GitHubConnection) error {
	if conn.Spec.Webhook == nil {
		return nil
	}
	secret, name := &corev1.Secret{}, conn.Spec.Webhook.SecretRef.Name
	err := r.Secrets.Get(ctx, types.NamespacedName{Namespace: conn.Namespace, Name: name}, secret)
	switch {
	case apierrors.IsNotFound(err):
		return kube.Stall(v1alpha1.WebhookSecretMissingReason, "spec.webhook.secretRef: Secret %s isn't there, so GitHub's events are refused", name)
	case apierrors.IsForbidden(err):
		return kube.Stall(v1alpha1.WebhookSecretMissingReason, "spec.webhook.secretRef: Secret %s may not be read by the controller: %w", name, err)
	case err != nil:
		// Whether there is one is looked at again in a minute; the connection is as good as before.
		return nil //nolint:nilerr // see above
	case len(bytes.TrimSpace(secret.Data[v1alpha1.WebhookSecretKey])) == 0:
		return kube.Stall(v1alpha1.WebhookSecretMissingReason, "spec.webhook.secretRef: Secret %s has nothing under the key %s, so GitHub's events are refused", name, v1alpha1.WebhookSecretKey)
	}
	return nil
}
