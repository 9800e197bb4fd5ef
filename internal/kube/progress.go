// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"

	"github.com/fluxcd/pkg/runtime/conditions"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Progress says, ahead of slow work, that it has begun: Ready is Unknown and
// Reconciling True until Finish.
func (a *Attempt) Progress(ctx context.Context, message string) error {
	conditions.MarkUnknown(a.obj, v1alpha1.ReadyCondition, v1alpha1.ProgressingReason, "%s", message)
	conditions.MarkReconciling(a.obj, v1alpha1.ProgressingReason, "%s", message)
	return a.Save(ctx)
}
