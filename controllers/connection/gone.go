// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"fmt"

	"github.com/fluxcd/pkg/runtime/conditions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Gone says whether a connection, or the credentials it names, were taken away, so
// that clean-up on GitHub can't wait for it. One that is merely not ready, as after a
// restart or during an outage, is not gone.
func Gone(ctx context.Context, c client.Reader, key client.ObjectKey) (bool, error) {
	found := &v1alpha1.GitHubConnection{}
	if err := c.Get(ctx, key, found); err != nil {
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, fmt.Errorf("reading the connection: %w", err)
	}
	return conditions.GetReason(found, v1alpha1.ReadyCondition) == v1alpha1.CredentialsMissingReason, nil
}

// NotReady says in words that a connection has no client yet, and why as far as it says.
func NotReady(ctx context.Context, c client.Reader, key client.ObjectKey) string {
	found := &v1alpha1.GitHubConnection{}
	if err := c.Get(ctx, key, found); err != nil {
		return fmt.Sprintf("GitHubConnection %q is not there", key.Name)
	}
	words := fmt.Sprintf("GitHubConnection %q is not ready", key.Name)
	if reason := conditions.GetReason(found, v1alpha1.ReadyCondition); reason != "" {
		words += ": " + reason
	}
	return words
}
