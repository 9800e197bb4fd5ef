// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"fmt"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Activity is what warm capacity depends on.
type Activity struct {
	// Idle runners that the pool declares now.
	Idle int32
	// Jobs that there are, and Busy runners.
	Jobs, Busy int32
	// LastJob is when there was a job last; after a restart, when the pool was first looked at again. A zero one is unknown: nothing ends.
	LastJob time.Time
	Now     time.Time
}

// Warmth is how many idle runners there are to be.
type Warmth struct {
	// Idle runners, instead of those that the pool declares.
	Idle int32
	// Reason why they are others, without a full stop; empty if they are not.
	Reason string
	// Next is after what time they end if no job comes; 0 for no time.
	Next time.Duration
}

// Warm says how many idle runners there are to be. What boosts add comes on top.
func Warm(scale v1alpha1.ScaleSpec, a Activity) Warmth {
	warm := Warmth{Idle: a.Idle}
	if percent := scale.IdlePercentOfBusy; percent != nil {
		share := (int64(max(0, a.Busy))*int64(*percent) + 99) / 100
		if share > int64(warm.Idle) {
			warm.Idle = int32(min(share, MostJobs)) //nolint:gosec // it is bounded
			warm.Reason = fmt.Sprintf("%d idle are %d %% of %d busy", warm.Idle, *percent, a.Busy)
		}
	}
	timeout := scale.IdleTimeout
	if timeout == nil || a.Jobs > 0 || a.Busy > 0 || a.LastJob.IsZero() || warm.Idle == 0 {
		return warm
	}
	left := timeout.Duration - a.Now.Sub(a.LastJob)
	if left > 0 {
		warm.Next = left
		return warm
	}
	return Warmth{Reason: fmt.Sprintf("no idle ones: no job for %s", timeout.Duration)}
}
