// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/sim/githubsim"
)

// queued is when the jobs of the tests were queued.
var queued = time.Unix(1_000_000, 0)

// job returns a job that waited for the given time and succeeded.
func job(id, pool string, wait time.Duration, change ...func(*githubsim.JobTimeline)) githubsim.JobTimeline {
	j := githubsim.JobTimeline{
		ID: id, ScaleSet: pool, State: githubsim.JobCompleted, Result: githubsim.ResultSucceeded, Starts: 1,
		Queued: queued, Started: queued.Add(wait),
	}
	for _, c := range change {
		c(&j)
	}
	return j
}

func good() *outcome {
	o := &outcome{
		Planned: 25, JobPhase: 65432 * time.Millisecond, RunnersMade: 27,
		Requests: map[githubsim.Endpoint]int{
			githubsim.EndpointGetMessage: 60, githubsim.EndpointJITConfig: 27, githubsim.EndpointDeleteMessage: 27,
			githubsim.EndpointRunnerSession: 27, githubsim.EndpointRunnerMessage: 30, githubsim.EndpointUser: 0,
		},
		Use: use{KubeRequests: 512, CPUSeconds: 3.21, MemoryBytes: 70e6}, LogErrors: 1,
	}
	for i := range 20 {
		o.Jobs = append(o.Jobs, job("s", "linux-small", time.Duration(i+1)*100*time.Millisecond))
	}
	for range 5 {
		o.Jobs = append(o.Jobs, job("w", "warm", 50*time.Millisecond))
	}
	for i := range 5 {
		o.Jobs = append(o.Jobs, job("e", "", 70*time.Millisecond, func(j *githubsim.JobTimeline) { j.Labels = []string{"events"} }))
		o.Deliveries = append(o.Deliveries, githubsim.DeliveryReport{Code: 202, Took: time.Duration(i+1) * 200 * time.Microsecond})
	}
	o.Planned += 5
	return o
}

func TestTheSummaryIsHonest(t *testing.T) {
	compare(t, "summary.txt", good().lines(false))
	bad := good()
	bad.Jobs[0].Result, bad.Jobs[0].ID = githubsim.ResultFailed, "one"
	bad.Jobs[1].Starts, bad.Jobs[1].ID = 2, "two"
	bad.Deliveries[0].Code = 503
	bad.Left, bad.Broken = []string{"v1.Pod warm-1"}, []string{"a busy runner was ended"}
	compare(t, "summary-bad.txt", bad.lines(false))
}

func TestProblems(t *testing.T) {
	only := func(change func(*githubsim.JobTimeline)) *outcome {
		return &outcome{Planned: 1, Jobs: []githubsim.JobTimeline{job("j", "warm", 0, change)}}
	}
	tests := map[string]struct {
		outcome *outcome
		want    []string
	}{
		"all is well":   {only(func(*githubsim.JobTimeline) {}), nil},
		"run twice":     {only(func(j *githubsim.JobTimeline) { j.Starts = 2 }), []string{"job j was run 2 times"}},
		"never started": {only(func(j *githubsim.JobTimeline) { j.Starts = 0 }), []string{"job j is done, but no runner started it"}},
		"unfinished":    {only(func(j *githubsim.JobTimeline) { j.State = githubsim.JobAssigned }), []string{"job j is assigned"}},
		"failed":        {only(func(j *githubsim.JobTimeline) { j.Result = githubsim.ResultFailed }), []string{"job j failed"}},
		"not arrived":   {&outcome{Planned: 3}, []string{"3 of 3 jobs never arrived"}},
		"left over":     {&outcome{Left: []string{"x"}}, []string{"left over: x"}},
		"broken":        {&outcome{Broken: []string{"x"}}, []string{"violation: x"}},
		"too many": {
			&outcome{Broken: strings.Split("abcdefghijkl", "")},
			append(strings.Split("violation: "+strings.Join(strings.Split("abcdefghij", ""), ",violation: "), ","), "violation: and 2 more"),
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.outcome.problems()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestQuantilesAreOfTheNearestRank(t *testing.T) {
	sorted := []time.Duration{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for p, want := range map[float64]time.Duration{0.05: 1, 0.5: 5, 0.95: 10, 1: 10} {
		if got := quantile(sorted, p); got != want {
			t.Errorf("quantile %v is %d, not %d", p, got, want)
		}
	}
	if got := quantile(nil, 0.5); got != 0 {
		t.Errorf("the quantile of nothing is %d", got)
	}
}
