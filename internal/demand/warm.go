// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"fmt"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Activity is the input of Warm: the declared number of idle runners, and the pool's current work.
type Activity struct {
	// Idle is the number of idle runners that the pool currently declares.
	Idle int32
	// Jobs is the number of jobs, and Busy the number of busy runners.
	Jobs, Busy int32
	// LastJob is when the pool last had a job or, if it had none since the controller started, when it was first
	// evaluated. If LastJob is zero, this is unknown, and the idle runners stay.
	LastJob time.Time
	Now     time.Time
}

// Warmth is the result of Warm.
type Warmth struct {
	// Idle replaces the declared number of idle runners.
	Idle int32
	// Reason why Idle differs from the declared number, without a full stop; empty if it does not.
	Reason string
	// Next is how long until Idle becomes 0 if there is no job until then; 0 if Idle will not change.
	Next time.Duration
}

// Warm returns the number of idle runners to keep. This is the declared number or idlePercentOfBusy of the busy
// runners, whichever is larger, and 0 once there was no job for idleTimeout. The caller adds the boosts to it.
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
