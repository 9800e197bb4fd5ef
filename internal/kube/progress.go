// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"

	"github.com/corral-dev/corral/internal/catalog"
)

// Progress says, ahead of slow work, that it has begun: Ready is Unknown and
// Reconciling True until Finish.
func (a *Attempt) Progress(ctx context.Context, causes ...catalog.Cause) error {
	a.underWay(causes)
	return a.Save(ctx)
}
