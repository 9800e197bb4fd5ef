// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"cmp"
	"context"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/controllers/runners"
	"github.com/corral-dev/corral/internal/claims"
	"github.com/corral-dev/corral/internal/scaling"
)

// poolCache describes the claims of a pool's cache.
type poolCache struct {
	claims []runners.PoolClaim
	// useless lists the claims to delete, with the reasons.
	useless []claims.Removal
	// status is nil if the pool has neither a cache nor claims.
	status *v1alpha1.CacheStatus
}

// readCache counts the claims of the pool and finds claims that should be deleted.
func (r *Reconciler) readCache(ctx context.Context, o observation) (c poolCache, err error) {
	spec := o.pool.Spec.Cache
	if c.claims, err = r.Claims.Of(ctx, o.pool); err != nil || spec == nil && len(c.claims) == 0 {
		return c, err
	}
	c.status = &v1alpha1.CacheStatus{Claims: int32(len(c.claims))} //nolint:gosec // the names of claims limit their number
	if before := o.pool.Status.Cache; before != nil {
		c.status.LastMiss = before.LastMiss
	}
	list := make([]claims.Claim, 0, len(c.claims))
	for _, x := range c.claims {
		list = append(list, x.Claim)
		if x.InUse {
			c.status.InUse++
		}
	}
	c.useless = claims.Remove(spec, list, o.now)
	return c, nil
}

// missed records in the status the last runner that started without a claim since the previous pass. last is nil if
// there is none.
func (c poolCache) missed(last *v1alpha1.CacheMiss) {
	if c.status != nil {
		c.status.LastMiss = cmp.Or(last, c.status.LastMiss)
	}
}

// checkClaims limits the pool to the number of available claims while a runner waits for a claim.
func checkClaims(pool *v1alpha1.RunnerPool, list runnerList, sources []string) ([]scaling.Hold, notReady) {
	if pool.Spec.Cache == nil || pool.Spec.Cache.GetOnMissing() != v1alpha1.WaitForClaim {
		return nil, notReady{}
	}
	return checkWaiting(list, sources, v1alpha1.CauseCache, v1alpha1.CacheUnavailableReason, "the cache has claims for %d")
}
