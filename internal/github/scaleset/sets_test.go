// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"fmt"
	"math"
	"testing"
	"time"

	official "github.com/actions/scaleset"

	"github.com/corral-dev/corral/internal/github"
)

func TestCountsOfGitHubAreBounded(t *testing.T) {
	got := statisticsOf(&official.RunnerScaleSetStatistic{TotalAvailableJobs: math.MaxInt64, TotalAssignedJobs: -3, TotalIdleRunners: 2})
	if want := (Statistics{AvailableJobs: math.MaxInt32, IdleRunners: 2}); *got != want {
		t.Errorf("got %+v, want %+v", *got, want)
	}
}

// Brief, which callers use under a lock, copies none of the events that a server may have sent.
func TestABriefLookCopiesNoEvents(t *testing.T) {
	o := newObservation(github.Options{}.WithDefaults(1).For(github.Credentials{}).Keep)
	for i := range 2 * mostRunners {
		o.add(&message{events: []JobEvent{{Type: JobStarted, RunnerName: fmt.Sprint("r", i), JobID: "1"}}}, time.Now())
	}
	if n := len(o.get().Started); n != mostRunners {
		t.Errorf("%d events are kept", n)
	}
	if n := testing.AllocsPerRun(10, func() { o.brief() }); n > 0 {
		t.Errorf("it allocates %v times", n)
	}
}
