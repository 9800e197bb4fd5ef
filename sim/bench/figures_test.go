// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestQuantilesAreOfTheNearestRank(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(i+1))
	}
	for name, tc := range map[string]struct {
		of   []time.Duration
		p    float64
		want time.Duration
	}{
		"none":                {nil, 0.99, 0},
		"one":                 {[]time.Duration{7}, 0.5, 7},
		"half of two":         {[]time.Duration{1, 2}, 0.5, 1},
		"99th of a hundred":   {hundred, 0.99, 99},
		"the most":            {hundred, 1, 100},
		"99th of ten is most": {hundred[:10], 0.99, 10},
	} {
		t.Run(name, func(t *testing.T) {
			if got := quantile(tc.of, tc.p); got != tc.want {
				t.Errorf("it is %d, not %d", got, tc.want)
			}
		})
	}
}

func TestTheKthJobIsMatchedWithTheKthPodOfItsPool(t *testing.T) {
	start := time.Now()
	at := func(seconds ...int) (all []time.Time) {
		for _, s := range seconds {
			all = append(all, start.Add(time.Duration(s)*time.Second))
		}
		return all
	}
	for name, tc := range map[string]struct {
		demands, pods map[string][]time.Time
		want          []time.Duration
	}{
		"in any order":              {map[string][]time.Time{"a": at(2, 0, 1)}, map[string][]time.Time{"a": at(5, 3, 9)}, []time.Duration{3 * time.Second, 4 * time.Second, 7 * time.Second}},
		"a pod that was there":      {map[string][]time.Time{"a": at(4)}, map[string][]time.Time{"a": at(1)}, []time.Duration{0}},
		"a job without a pod":       {map[string][]time.Time{"a": at(0, 0)}, map[string][]time.Time{"a": at(1)}, []time.Duration{time.Second}},
		"a pod too many":            {map[string][]time.Time{"a": at(0)}, map[string][]time.Time{"a": at(1, 2)}, []time.Duration{time.Second}},
		"another pool's are others": {map[string][]time.Time{"a": at(0)}, map[string][]time.Time{"b": at(1)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, matchFIFO(tc.demands, tc.pods)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTheMedianIsTakenOfEachFigure(t *testing.T) {
	runs := []figures{{"a": 1, "b": 9, "kube/get x": 3}, {"a": 3, "b": 7}, {"a": 2, "b": 8, "kube/get x": 1}}
	if diff := cmp.Diff(figures{"a": 2, "b": 8, "kube/get x": 1}, medians(runs)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(figures{"a": 1, "b": 7, "kube/get x": 0}, medians(runs[:2])); diff != "" {
		t.Errorf("of two the lower: %s", diff)
	}
}

func TestABoundThatIsBrokenIsNamed(t *testing.T) {
	results := []result{
		{Scenario: "burst-500", Figures: figures{"p99_to_floor": 2.5, "kube_per_job": 9}},
		{Scenario: "burst-500", GitHubLatencyMS: 100, Figures: figures{"p99_to_floor": 2.5, "runners_per_job": 1.1}},
		{Scenario: "burst-100", Figures: figures{"p99_to_floor": 50}},
	}
	want := []string{
		"burst-500: p99 within 2x of the floor: it is 2.5",
		"burst-500, 100 ms: at most 2 % more runners than jobs: it is 1.1",
	}
	if diff := cmp.Diff(want, brokenBounds(results)); diff != "" {
		t.Error(diff)
	}
}

func TestAStreamIsTheSameForASeed(t *testing.T) {
	pools := []string{"a", "b"}
	first, second := stream(pools, 7, time.Minute, 3), stream(pools, 7, time.Minute, 3)
	if diff := cmp.Diff(first, second, cmp.AllowUnexported(arrival{})); diff != "" {
		t.Error(diff)
	}
	if n := len(first); n < jobsPerSecond*60/2 || n > jobsPerSecond*60*2 {
		t.Errorf("%d jobs arrive in a minute", n)
	}
	for i, a := range first {
		if a.after >= time.Minute || i > 0 && a.after < first[i-1].after {
			t.Errorf("job %d arrives at %s", i, a.after)
		}
	}
}

func TestTheChartsMemoryLimitIsRead(t *testing.T) {
	if limit := chartLimit(); limit < 1024 {
		t.Errorf("it is %v MiB", limit)
	}
}
