// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/schedule"
)

// scheduledPool returns a pool in the form of a policy input, with the numbers that its schedules set
// at a time.
func scheduledPool(pool *v1alpha1.RunnerPool, now schedule.Now) policy.Pool {
	p := policy.PoolOf(pool)
	p.Scale = now.Scale
	return p
}

// scheduledPoolAt evaluates the schedules of a pool, and returns the pool in the form of a policy
// input.
func scheduledPoolAt(pool *v1alpha1.RunnerPool, at time.Time) policy.Pool {
	plan, _ := schedule.Compile(pool.Spec.Scale.Schedules) // problems were reported when the pool was read
	return scheduledPool(pool, plan.At(at, pool.Spec.Scale))
}
