// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package connections

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/kube"
	"github.com/corral-dev/corral/internal/webhook"
)

// Signatures reports whether a connection's events seem to be signed with another secret than its own; *webhook.Signatures
// implements it.
type Signatures interface {
	Wrong(connection types.NamespacedName, now time.Time) (secret [sha256.Size]byte, isIt bool)
}

// eventsRefused returns a message if received events are not signed with the current secret; empty if they are, or if it is
// unknown. The message does not make the connection unready. Anyone can send wrong events, and pools that wait for the
// connection must not be delayed by them.
func (r *Reconciler) eventsRefused(ctx context.Context, conn *v1alpha1.GitHubConnection) string {
	if conn.Spec.Webhook == nil {
		return ""
	}
	compared, isWrong := r.Signatures.Wrong(client.ObjectKeyFromObject(conn), r.Now())
	if !isWrong {
		return ""
	}
	secret, name := &corev1.Secret{}, conn.Spec.Webhook.SecretRef.Name
	err := r.Secrets.Get(ctx, types.NamespacedName{Namespace: conn.Namespace, Name: name}, secret)
	if err != nil || sha256.Sum256(webhook.SecretOf(secret.Data, v1alpha1.WebhookSecretKey)) != compared {
		return ""
	}
	return fmt.Sprintf("incoming events aren't signed with the secret in Secret %s", name)
}

// withEvents returns the missing features with the feature events added if refused is a message, and removed if it is
// empty.
func withEvents(missing []v1alpha1.MissingFeature, refused string) []v1alpha1.MissingFeature {
	missing = slices.DeleteFunc(slices.Clone(missing), func(l v1alpha1.MissingFeature) bool { return l.Name == v1alpha1.FeatureEvents })
	if refused != "" {
		missing = append(missing, v1alpha1.MissingFeature{Name: v1alpha1.FeatureEvents, Message: refused})
	}
	return missing
}

// checkWebhook returns a Stall if GitHub's events are refused because there is no secret. Pools keep working.
func (r *Reconciler) checkWebhook(ctx context.Context, conn *v1alpha1.GitHubConnection) error {
	if conn.Spec.Webhook == nil {
		return nil
	}
	secret, name := &corev1.Secret{}, conn.Spec.Webhook.SecretRef.Name
	err := r.Secrets.Get(ctx, types.NamespacedName{Namespace: conn.Namespace, Name: name}, secret)
	switch {
	case apierrors.IsNotFound(err):
		return kube.Stall(catalog.WebhookSecretNotFound.With(name))
	case apierrors.IsForbidden(err):
		return kube.Stall(catalog.WebhookSecretForbidden.With(name).Wrap(err))
	case err != nil:
		// The Secret is checked again in a minute. Until then, this error does not make the connection unready.
		return nil //nolint:nilerr // see above
	case len(webhook.SecretOf(secret.Data, v1alpha1.WebhookSecretKey)) == 0:
		return kube.Stall(catalog.WebhookSecretKeyMissing.With(name, v1alpha1.WebhookSecretKey))
	}
	for _, key := range []string{v1alpha1.WebhookSecretKey, v1alpha1.WebhookPreviousKey} {
		if len(webhook.SecretOf(secret.Data, key)) > webhook.MaxSecretBytes {
			return kube.Stall(catalog.WebhookSecretTooLong.With(key, name, webhook.MaxSecretBytes))
		}
	}
	return nil
}
