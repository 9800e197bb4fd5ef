// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/schedule"
)

// scheduled is what policies are told of a pool: its numbers are those that its schedules make at a time.
func scheduled(pool *v1alpha1.RunnerPool, now schedule.Now) policy.Pool {
	p := policy.PoolOf(pool)
	p.Scale = now.Scale
	return p
}

// scheduledAt is scheduled for one time.
func scheduledAt(pool *v1alpha1.RunnerPool, at time.Time) policy.Pool {
	plan, _ := schedule.Compile(pool.Spec.Scale.Schedules) // checkSchedules told what is wrong
	return scheduled(pool, plan.At(at, pool.Spec.Scale))
}

// checkSchedules tells the first problem of a pool's schedules.
func checkSchedules(pool *v1alpha1.RunnerPool) error {
	if _, problems := schedule.Compile(pool.Spec.Scale.Schedules); len(problems) > 0 {
		return errors.New(problems[0].String())
	}
	return nil
}
