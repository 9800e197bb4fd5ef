// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"

	"github.com/corral-dev/corral/internal/catalog"
)

// Progress reports that slow work has begun: Ready is Unknown and Reconciling is True until Finish.
func (a *Attempt) Progress(ctx context.Context, causes ...catalog.Cause) error {
	a.underWay(causes)
	return a.Save(ctx)
}
