// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package poolstatus

import "github.com/corral-dev/corral/apis/v1alpha1"

// Count adds one runner in a state to the counts.
func Count(c *v1alpha1.RunnerCounts, state v1alpha1.RunnerState, outdated bool) {
	c.Total++
	switch state {
	case v1alpha1.RunnerIdle:
		c.Idle++
	case v1alpha1.RunnerBusy:
		c.Busy++
	case v1alpha1.RunnerFinished:
		c.Finished++
	case v1alpha1.RunnerFailed:
		c.Failed++
	default:
		c.Pending++
	}
	if outdated {
		c.Outdated++
	}
}

// Sum adds the counts of two pools.
func Sum(a, b v1alpha1.RunnerCounts) v1alpha1.RunnerCounts {
	return v1alpha1.RunnerCounts{
		Total: a.Total + b.Total, Pending: a.Pending + b.Pending, Idle: a.Idle + b.Idle, Busy: a.Busy + b.Busy,
		Finished: a.Finished + b.Finished, Failed: a.Failed + b.Failed, Outdated: a.Outdated + b.Outdated,
	}
}
