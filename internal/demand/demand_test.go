// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package demand_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/demand"
)

func TestCombine(t *testing.T) {
	jobs := func(name string, n int32, reason string) demand.Signal {
		return demand.Signal{Name: name, Jobs: &n, Reason: reason}
	}
	idle := func(name string, n int32) demand.Signal {
		return demand.Signal{Name: name, Idle: &n, Reason: "an event"}
	}
	total := func(name string, n int32) demand.Signal {
		return demand.Signal{Name: name, Total: &n, Reason: "busy"}
	}
	silent := demand.Signal{Name: "queue", Reason: "no answer", Stale: true}
	known := func(signals ...demand.Signal) demand.Reading { return demand.Reading{Known: true, Signals: signals} }

	for name, tc := range map[string]struct {
		in   demand.Input
		want demand.Demand
	}{
		"no source, no demand": {
			want: demand.Demand{Known: true},
		},
		"of sources that tell of jobs the largest holds, the first of equal ones says why": {
			in: demand.Input{Readings: []demand.Reading{
				known(jobs("scaleSet", 3, "GitHub assigned 3")), known(jobs("webhook", 7, "7 jobs"), jobs("queue", 7, "the value is 7")),
			}},
			want: demand.Demand{Known: true, Jobs: 7, Reason: "webhook: 7 jobs"},
		},
		"jobs are no fewer than the runners with one": {
			in:   demand.Input{Readings: []demand.Reading{known(jobs("webhook", 1, "1 job"))}, Busy: 4},
			want: demand.Demand{Known: true, Jobs: 4, Reason: "4 busy runners"},
		},
		"none is said to be none": {
			in:   demand.Input{Readings: []demand.Reading{known(jobs("webhook", 0, "no jobs"))}},
			want: demand.Demand{Known: true, Reason: "webhook: no jobs"},
		},
		"boosts add up, and the largest proposal for a total holds": {
			in: demand.Input{Readings: []demand.Reading{known(idle("pr", 2), idle("push", 3), idle("check", 0), total("busy", 5), total("also", 9))}},
			want: demand.Demand{
				Known: true, Idle: 5, IdleReason: "pr: an event; push: an event", Total: 9, TotalReason: "also: busy",
			},
		},
		"a source without a signal goes by what it said last": {
			in: demand.Input{
				Readings: []demand.Reading{known(jobs("webhook", 1, "1 job"), silent)},
				Before:   []v1alpha1.DemandStatus{{Name: "queue", Jobs: new(int32(12)), Reason: "the value is 12"}, {Name: "gone", Jobs: new(int32(50))}},
			},
			want: demand.Demand{Known: true, Jobs: 12, Reason: "queue: no answer", Stale: true},
		},
		"one that can't see all says more than before, and no less": {
			in: demand.Input{
				Readings: []demand.Reading{known(
					demand.Signal{Name: "queue", Reason: "part", Jobs: new(int32(5)), Stale: true}, demand.Signal{Name: "other", Reason: "part", Jobs: new(int32(8)), Stale: true},
				)},
				Before: []v1alpha1.DemandStatus{{Name: "queue", Jobs: new(int32(9))}, {Name: "other", Jobs: new(int32(7))}},
			},
			want: demand.Demand{Known: true, Jobs: 9, Reason: "queue: part", Stale: true},
		},
		"a source that was never heard keeps what runs, and stops no other": {
			in:   demand.Input{Readings: []demand.Reading{known(jobs("webhook", 2, "2 jobs"), silent)}},
			want: demand.Demand{Known: true, Keep: true, Jobs: 2, Reason: "webhook: 2 jobs", Stale: true},
		},
		"before the first word, what was said before a restart holds": {
			in: demand.Input{
				Readings: []demand.Reading{{}, known(jobs("queue", 1, "the value is 1"))},
				Before:   []v1alpha1.DemandStatus{{Name: "webhook", Jobs: new(int32(8)), Reason: "8 jobs"}, {Name: "queue", Jobs: new(int32(9))}},
			},
			want: demand.Demand{Known: true, Keep: true, Jobs: 8, Reason: "webhook: 8 jobs", Stale: true},
		},
		"nothing heard and nothing remembered is nothing known": {
			in:   demand.Input{Readings: []demand.Reading{{}}},
			want: demand.Demand{Keep: true},
		},
		"a source that lies is cut": {
			in: demand.Input{Readings: []demand.Reading{
				known(jobs("queue", math.MaxInt32, "much"), jobs("less", -5, "little"), total("busy", math.MinInt32), idle("pr", math.MaxInt32), idle("push", 7)),
			}},
			want: demand.Demand{Known: true, Jobs: demand.MostJobs, Reason: "queue: much", TotalReason: "busy: busy", Idle: demand.MostJobs, IdleReason: "pr: an event; push: an event"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := demand.Combine(tc.in)
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(demand.Demand{}, "Statuses")); diff != "" {
				t.Errorf("demand (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCombineTellsEachSource(t *testing.T) {
	t.Parallel()
	n := int32(4)
	in := demand.Input{
		Readings: []demand.Reading{{Known: true, Signals: []demand.Signal{
			{Name: "webhook", Jobs: &n, Reason: "4 jobs"},
			{Name: "queue", Reason: strings.Repeat("ü", 300), Stale: true},
		}}},
		Before: []v1alpha1.DemandStatus{{Name: "queue", Jobs: new(int32(2))}},
	}
	got := demand.Combine(in).Statuses
	want := []v1alpha1.DemandStatus{
		{Name: "webhook", Jobs: new(int32(4)), Reason: "4 jobs"},
		{Name: "queue", Jobs: new(int32(2)), Reason: strings.Repeat("ü", 126) + "…", Stale: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("statuses (-want +got):\n%s", diff)
	}
	if got[0].Jobs == &n {
		t.Error("the status shares a number with the signal")
	}
}

// Whatever fails, and in whatever order, the last number of a source holds until it reports another one, and no failure
// lowers another source's number.
func TestNoFailureLowersTheDemand(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(3, 4))
	names := []string{"scaleSet", "webhook", "queue", "load"}
	said := map[string]int32{} // the last number of each source with a signal
	var status []v1alpha1.DemandStatus
	for i := range 20_000 {
		var readings []demand.Reading
		var want int32
		keep := false
		for _, name := range names {
			r := demand.Reading{Known: random.IntN(10) > 0}
			failed := random.IntN(3) == 0
			switch n := random.Int32N(50); {
			case !r.Known: // after a restart
			case failed && random.IntN(2) == 0: // it has lost its last number
				r.Signals = []demand.Signal{{Name: name, Stale: true}}
			case failed:
				r.Signals = []demand.Signal{{Name: name, Stale: true, Jobs: last(said, name)}}
			default:
				r.Signals, said[name] = []demand.Signal{{Name: name, Jobs: &n}}, n
			}
			if _, ok := said[name]; !ok || !r.Known {
				keep = true
			}
			want = max(want, said[name])
			readings = append(readings, r)
		}
		d := demand.Combine(demand.Input{Readings: readings, Before: status})
		if d.Jobs != want || (d.Keep != keep) {
			t.Fatalf("step %d: %d jobs, keep %v; want %d, %v\nof %+v\nafter %+v", i, d.Jobs, d.Keep, want, keep, readings, status)
		}
		status = d.Statuses
	}
}

func last(said map[string]int32, name string) *int32 {
	if n, ok := said[name]; ok {
		return &n
	}
	return nil
}
