// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package connections

import (
	"context"
	"fmt"
	"time"

	"github.com/fluxcd/pkg/runtime/conditions"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/kube"
)

// Gone reports whether a connection, or its credentials, were deleted, so that clean-up on GitHub need not wait for the
// connection. A connection that is merely not ready, as after a restart or during an outage, is not gone.
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

const (
	// readyRetry is the delay before the next check of a connection that is not ready.
	readyRetry = 5 * time.Second
	// startRetry is the delay before the next check of a ready connection whose client is being created. It is short,
	// because all pools wait for their connections when the controller starts.
	startRetry = 250 * time.Millisecond
)

// NotReady returns the outcome of a pass that needs a connection which has no client yet. It contains the connection's
// reason, if known, and the delay before the next check.
func NotReady(ctx context.Context, c client.Reader, key client.ObjectKey) error {
	found := &v1alpha1.GitHubConnection{}
	if err := c.Get(ctx, key, found); err != nil {
		return kube.Wait(readyRetry, catalog.ConnectionMissing.With(key.Name))
	}
	if conditions.IsReady(found) {
		return kube.Starting(startRetry, catalog.ConnectionStarting.With(key.Name))
	}
	if o := found.Status.Outage; o != nil {
		return kube.Wait(readyRetry, catalog.ConnectionUnavailable.With(key.Name).Wrap(&outage{v1alpha1.GitHubOutage{Code: o.Code}}))
	}
	reason := conditions.GetReason(found, v1alpha1.ReadyCondition)
	if reason == "" {
		return kube.Progress(startRetry, catalog.ConnectionUnverified.With(key.Name))
	}
	return kube.Wait(readyRetry, catalog.ConnectionFailed.With(key.Name, reason))
}
