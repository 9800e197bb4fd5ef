// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"testing"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

func TestAJobThatWaitsIsCountedOnce(t *testing.T) {
	webhook := []v1alpha1.DemandStatus{{Name: "webhook"}}
	for name, tc := range map[string]struct {
		status    v1alpha1.RunnerPoolStatus
		announced int32
		want      int32 // waiting jobs
	}{
		"GitHub offers more than the pool takes": {v1alpha1.RunnerPoolStatus{Jobs: new(int32(10)), JobsWaiting: 4, Runners: v1alpha1.RunnerCounts{Busy: 10}}, 10, 4},
		"a webhook tells of more":                {v1alpha1.RunnerPoolStatus{Jobs: new(int32(5)), JobsWaiting: 2, Runners: v1alpha1.RunnerCounts{Busy: 3}, Demand: webhook}, 3, 2},
		"a webhook tells, and none is taken":     {v1alpha1.RunnerPoolStatus{Jobs: new(int32(1)), JobsWaiting: 1, Demand: webhook}, 0, 1},
		"GitHub offers more than a webhook":      {v1alpha1.RunnerPoolStatus{Jobs: new(int32(5)), JobsWaiting: 4, Runners: v1alpha1.RunnerCounts{Busy: 3}, Demand: webhook}, 3, 4},
	} {
		tc.status.Decision = &v1alpha1.Decision{Announced: tc.announced}
		if got := Waiting(&tc.status); got != tc.want {
			t.Errorf("%s: %d jobs wait, want %d", name, got, tc.want)
		}
	}
}
