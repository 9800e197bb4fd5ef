// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"math"
	"testing"

	official "github.com/actions/scaleset"
)

func TestCountsOfGitHubAreBounded(t *testing.T) {
	got := statisticsOf(&official.RunnerScaleSetStatistic{TotalAvailableJobs: math.MaxInt64, TotalAssignedJobs: -3, TotalIdleRunners: 2})
	if want := (Statistics{AvailableJobs: math.MaxInt32, IdleRunners: 2}); *got != want {
		t.Errorf("got %+v, want %+v", *got, want)
	}
}
