// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaling_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/demand"
	"github.com/corral-dev/corral/internal/scaling"
)

var now = time.Unix(1_000_000, 0)

const old = time.Hour

func runner(name string, state v1alpha1.RunnerState, age time.Duration) scaling.Runner {
	return scaling.Runner{Name: name, State: state, Since: now.Add(-age)}
}

func many(n int, state v1alpha1.RunnerState, age time.Duration) []scaling.Runner {
	var list []scaling.Runner
	for i := range n {
		list = append(list, runner(fmt.Sprintf("%s-%d", state, i), state, age))
	}
	return list
}

func outdated(list []scaling.Runner) []scaling.Runner {
	for i := range list {
		list[i].Outdated = true
		list[i].Name = "old-" + list[i].Name
	}
	return list
}

func concat(lists ...[]scaling.Runner) []scaling.Runner {
	var all []scaling.Runner
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

func TestDecide(t *testing.T) {
	unbounded := v1alpha1.Scale{Max: v1alpha1.UnboundedMax}
	cases := map[string]struct {
		in   scaling.Input
		want scaling.Plan
	}{
		"from zero": {
			in:   scaling.Input{Limits: v1alpha1.Scale{Max: 10}, Jobs: 3},
			want: scaling.Plan{Desired: 3, Create: 3, Announce: 10, Reason: "3 jobs"},
		},
		"something else tells of jobs": {
			in:   scaling.Input{Limits: v1alpha1.Scale{Max: 10, Idle: 1}, Demand: demand.Demand{Jobs: 3, Reason: "webhook: 3 wait"}, IdleReason: "push to main"},
			want: scaling.Plan{Desired: 4, Create: 4, Announce: 10, Reason: "3 jobs (webhook: 3 wait) + 1 idle (push to main)"},
		},
		"jobs that are only told of are not served above max": {
			in:   scaling.Input{Limits: v1alpha1.Scale{Max: 4}, Jobs: 1, Demand: demand.Demand{Jobs: 9}},
			want: scaling.Plan{Desired: 4, Create: 4, Announce: 4, Waiting: 5, Full: true, Reason: "9 jobs, bounded by max 4"},
		},
		"not all was heard: none ends": {
			in:   scaling.Input{Limits: v1alpha1.Scale{Max: 10}, Demand: demand.Demand{Keep: true}, Runners: many(2, v1alpha1.RunnerIdle, old)},
			want: scaling.Plan{Supply: 2, Announce: 10, Reason: "0 jobs"},
		},
		"something asks for a total": {
			in:   scaling.Input{Limits: v1alpha1.Scale{Max: 10}, Jobs: 3, Demand: demand.Demand{Total: 6, TotalReason: "metric busy"}},
			want: scaling.Plan{Desired: 6, Create: 6, Announce: 10, Reason: "3 jobs, raised to 6 by metric busy"},
		},
		"a total is bounded by max": {
			in:   scaling.Input{Limits: v1alpha1.Scale{Max: 5}, Demand: demand.Demand{Total: 6, TotalReason: "metric busy"}},
			want: scaling.Plan{Desired: 5, Create: 5, Announce: 5, Reason: "0 jobs, raised to 6 by metric busy, bounded by max 5"},
		},
		"full, while more wait": {
			in:   scaling.Input{Limits: v1alpha1.Scale{Max: 2}, Jobs: 2, Offered: 4, Runners: many(2, v1alpha1.RunnerBusy, old)},
			want: scaling.Plan{Desired: 2, Supply: 2, Announce: 2, Waiting: 4, Full: true, Reason: "2 jobs: full (max 2); 4 more wait on GitHub"},
		},
		"full with idle ones, while more wait": {
			in:   scaling.Input{Limits: v1alpha1.Scale{Max: 2, Idle: 1}, Jobs: 2, Offered: 1, Runners: many(2, v1alpha1.RunnerBusy, old)},
			want: scaling.Plan{Desired: 2, Supply: 2, Announce: 2, Waiting: 1, Full: true, Reason: "2 jobs + 1 idle, bounded by max 2; 1 more wait on GitHub"},
		},
		"between the end of a job and the start of the next it stays full": {
			in:   scaling.Input{Limits: v1alpha1.Scale{Max: 2}, Jobs: 1, Saturated: true, Offered: 4, Runners: many(1, v1alpha1.RunnerBusy, old)},
			want: scaling.Plan{Desired: 1, Supply: 1, Announce: 2, Waiting: 4, Full: true, Reason: "1 job: full (max 2); 4 more wait on GitHub"},
		},
		"what GitHub offers to a pool with room is on its way, or old": {
			in:   scaling.Input{Limits: v1alpha1.Scale{Max: 2}, Jobs: 1, Offered: 4, Runners: many(1, v1alpha1.RunnerBusy, old)},
			want: scaling.Plan{Desired: 1, Supply: 1, Announce: 2, Reason: "1 job"},
		},
		"what GitHub offers when all is over is old": {
			in:   scaling.Input{Limits: v1alpha1.Scale{Max: 2}, Saturated: true, Offered: 4},
			want: scaling.Plan{Announce: 2, Reason: "0 jobs"},
		},
		"max 0, while jobs wait": {
			in:   scaling.Input{Offered: 4},
			want: scaling.Plan{Waiting: 4, Full: true, Reason: "0 jobs: full (max 0); 4 more wait on GitHub"},
		},
		"suspended, while jobs wait": {
			in:   scaling.Input{Suspended: true, Limits: v1alpha1.Scale{Max: 2}, Offered: 4},
			want: scaling.Plan{Waiting: 4, Reason: "draining: serving 0 jobs; 4 more wait on GitHub"},
		},
		"held back, while jobs wait": {
			in: scaling.Input{Limits: v1alpha1.Scale{Max: 10}, Jobs: 1, Offered: 4, Runners: many(1, v1alpha1.RunnerBusy, old),
				Holds: []scaling.Hold{{Announce: 1, Reason: "the namespace's quota admits 1"}}},
			want: scaling.Plan{Desired: 1, Supply: 1, Announce: 1, Waiting: 4, Reason: "1 job; the namespace's quota admits 1; 4 more wait on GitHub"},
		},
		"on the way up": {
			in:   scaling.Input{Limits: v1alpha1.Scale{Max: 10}, Jobs: 8, Pace: &scaling.Pace{Desired: 4, Reason: "8 jobs; at most 4 at once"}},
			want: scaling.Plan{Desired: 4, Create: 4, Announce: 10, Reason: "8 jobs; at most 4 at once"},
		},
		"on the way down, max fell": {
			in:   scaling.Input{Limits: v1alpha1.Scale{Max: 2}, Jobs: 3, Pace: &scaling.Pace{Desired: 9, Reason: "kept for 5m"}, Runners: many(9, v1alpha1.RunnerBusy, old)},
			want: scaling.Plan{Desired: 3, Supply: 9, Announce: 9, Reason: "kept for 5m, bounded by max 2"},
		},
		"on the way down, max fell hard": {
			in:   scaling.Input{Limits: v1alpha1.Scale{Max: 2}, JobsWait: true, Jobs: 3, Pace: &scaling.Pace{Desired: 9, Reason: "kept for 5m"}},
			want: scaling.Plan{Desired: 2, Create: 2, Announce: 2, Reason: "kept for 5m, bounded by max 2"},
		},
		"at zero, capacity is still announced": {
			in:   scaling.Input{Limits: v1alpha1.Scale{Max: 10}},
			want: scaling.Plan{Announce: 10, Reason: "0 jobs"},
		},
		"idle comes on top of jobs": {
			in:   scaling.Input{Limits: v1alpha1.Scale{Max: 10, Idle: 2}, Jobs: 1, Runners: many(1, v1alpha1.RunnerBusy, old)},
			want: scaling.Plan{Desired: 3, Supply: 1, Create: 2, Announce: 10, Reason: "1 job + 2 idle"},
		},
		"min is a floor of the total": {
			in:   scaling.Input{Limits: v1alpha1.Scale{Max: 10, Min: 4, Idle: 1}, Jobs: 1},
			want: scaling.Plan{Desired: 4, Create: 4, Announce: 10, Reason: "1 job + 1 idle, raised to min 4"},
		},
		"max bounds idle": {
			in:   scaling.Input{Limits: v1alpha1.Scale{Max: 4, Idle: 2}, Jobs: 3},
			want: scaling.Plan{Desired: 4, Create: 4, Announce: 4, Reason: "3 jobs + 2 idle, bounded by max 4"},
		},
		"no maximum": {
			in:   scaling.Input{Limits: unbounded, Jobs: 500},
			want: scaling.Plan{Desired: 500, Create: 500, Announce: v1alpha1.UnboundedMax, Reason: "500 jobs"},
		},
		"jobs accepted before max fell are served": {
			in:   scaling.Input{Limits: v1alpha1.Scale{Max: 2}, Jobs: 5, Runners: many(3, v1alpha1.RunnerBusy, old)},
			want: scaling.Plan{Desired: 5, Supply: 3, Create: 2, Announce: 3, Reason: "5 jobs accepted before max fell to 2 are served"},
		},
		"a hard max: jobs accepted before it fell wait": {
			in:   scaling.Input{Limits: v1alpha1.Scale{Max: 2}, JobsWait: true, Jobs: 5, Runners: many(1, v1alpha1.RunnerBusy, old)},
			want: scaling.Plan{Desired: 2, Supply: 1, Create: 1, Announce: 2, Reason: "5 jobs, bounded by max 2; 3 jobs accepted before wait, by policy"},
		},
		"suspended: accepted jobs are served, nothing is announced, idle runners end": {
			in: scaling.Input{Limits: v1alpha1.Scale{Max: 9, Min: 3, Idle: 2}, Suspended: true, Jobs: 1,
				Runners: concat(many(1, v1alpha1.RunnerBusy, old), many(2, v1alpha1.RunnerIdle, old))},
			want: scaling.Plan{Desired: 1, Supply: 3, Drain: []string{"Idle-0", "Idle-1"}, Reason: "draining: serving 1 job"},
		},
		"on hold: accepted jobs are served, nothing is announced, min and idle runners stay": {
			in: scaling.Input{Limits: v1alpha1.Scale{Max: 9, Min: 3, Idle: 2}, Held: true, Jobs: 1, Demand: demand.Demand{Jobs: 7, Total: 8, TotalReason: "queue"},
				Runners: concat(many(1, v1alpha1.RunnerBusy, old), many(2, v1alpha1.RunnerIdle, old))},
			want: scaling.Plan{Desired: 3, Supply: 3, Waiting: 6, Reason: "1 job (on hold) + 2 idle"},
		},
		"nothing heard yet: hold": {
			in:   scaling.Input{Limits: v1alpha1.Scale{Max: 9, Min: 3}, Runners: many(2, v1alpha1.RunnerIdle, old)},
			want: scaling.Plan{Desired: 2, Supply: 2, Announce: 9, Reason: "no count of jobs: Corral neither starts nor deletes runners"},
		},
		"failed and finished runners count for nothing": {
			in: scaling.Input{Limits: v1alpha1.Scale{Max: 9}, Jobs: 2,
				Runners: concat(many(2, v1alpha1.RunnerFailed, old), many(3, v1alpha1.RunnerFinished, old))},
			want: scaling.Plan{Desired: 2, Create: 2, Announce: 9, Reason: "2 jobs"},
		},
		"a runner that ended before its job's completion was counted keeps its place": {
			in: scaling.Input{Limits: v1alpha1.Scale{Max: 9}, Jobs: 1,
				Runners: []scaling.Runner{{Name: "a", State: v1alpha1.RunnerFinished, Settling: true, Since: now}}},
			want: scaling.Plan{Desired: 1, Supply: 1, Announce: 9, Reason: "1 job"},
		},
		"surplus within its protection is kept, and looked at again": {
			in:   scaling.Input{Limits: v1alpha1.Scale{Max: 9}, Runners: []scaling.Runner{runner("a", v1alpha1.RunnerIdle, 10*time.Second)}},
			want: scaling.Plan{Supply: 1, Announce: 9, Reason: "0 jobs", LookAgain: 20 * time.Second},
		},
		"surplus: starting before idle, the longest idle first": {
			in: scaling.Input{Limits: v1alpha1.Scale{Max: 9}, Jobs: 1, Runners: []scaling.Runner{
				runner("idle-young", v1alpha1.RunnerIdle, time.Minute), runner("idle-old", v1alpha1.RunnerIdle, old), runner("starting", v1alpha1.RunnerPending, time.Minute),
			}},
			want: scaling.Plan{Desired: 1, Supply: 3, Drain: []string{"starting", "idle-old"}, Announce: 9, Reason: "1 job"},
		},
		"a busy runner is never drained": {
			in:   scaling.Input{Limits: v1alpha1.Scale{Max: 1}, Runners: many(3, v1alpha1.RunnerBusy, old)},
			want: scaling.Plan{Supply: 3, Announce: 3, Reason: "0 jobs"},
		},
		"a runner being ended leaves supply but takes room": {
			in: scaling.Input{Limits: v1alpha1.Scale{Max: 2}, Jobs: 2,
				Runners: []scaling.Runner{{Name: "a", State: v1alpha1.RunnerIdle, Deleting: true, Since: now}}},
			want: scaling.Plan{Desired: 2, Create: 1, Announce: 2, Reason: "2 jobs"},
		},
		"extra runners come on top, whatever replaces what": {
			in:   scaling.Input{Limits: v1alpha1.Scale{Max: 8, Idle: 8}, Extra: 2, Surge: 2, Runners: outdated(many(8, v1alpha1.RunnerIdle, old))},
			want: scaling.Plan{Desired: 8, Supply: 8, Create: 2, Announce: 8, Reason: "0 jobs + 8 idle"},
		},
		"extra runners are no surplus": {
			in: scaling.Input{Limits: v1alpha1.Scale{Max: 4, Idle: 4}, Extra: 1, Surge: 1,
				Runners: concat(outdated(many(4, v1alpha1.RunnerIdle, old)), many(1, v1alpha1.RunnerIdle, old))},
			want: scaling.Plan{Desired: 4, Supply: 5, Announce: 4, Reason: "0 jobs + 4 idle"},
		},
		"what is being ended for others takes room of the surge": {
			in: scaling.Input{Limits: v1alpha1.Scale{Max: 4, Idle: 4}, Extra: 3, Surge: 3,
				Runners: concat(many(4, v1alpha1.RunnerIdle, old), []scaling.Runner{{Name: "a", State: v1alpha1.RunnerIdle, Deleting: true}})},
			want: scaling.Plan{Desired: 4, Supply: 4, Create: 2, Announce: 4, Reason: "0 jobs + 4 idle"},
		},
		"surplus: of idle runners the outdated first": {
			in: scaling.Input{Limits: v1alpha1.Scale{Max: 4}, Jobs: 2,
				Runners: concat(many(2, v1alpha1.RunnerIdle, 2*old), outdated(many(1, v1alpha1.RunnerIdle, old)))},
			want: scaling.Plan{Desired: 2, Supply: 3, Drain: []string{"old-Idle-0"}, Announce: 4, Reason: "2 jobs"},
		},
		"surplus: an idle runner stays until others that start run": {
			in: scaling.Input{Limits: v1alpha1.Scale{Max: 4}, Jobs: 1,
				Runners: concat(many(1, v1alpha1.RunnerIdle, old), many(1, v1alpha1.RunnerPending, time.Second))},
			want: scaling.Plan{Desired: 1, Supply: 2, Announce: 4, Reason: "1 job"},
		},
		"outdated busy runners finish and count": {
			in:   scaling.Input{Limits: v1alpha1.Scale{Max: 4}, Jobs: 2, Runners: outdated(many(2, v1alpha1.RunnerBusy, old))},
			want: scaling.Plan{Desired: 2, Supply: 2, Announce: 4, Reason: "2 jobs"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.in.Now = now
			tc.in.Demand.Known = name != "nothing heard yet: hold"
			if diff := cmp.Diff(tc.want, scaling.Decide(tc.in)); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

// For any state, a plan obeys the general rules.
func TestDecideKeepsItsInvariants(t *testing.T) {
	states := []v1alpha1.RunnerState{v1alpha1.RunnerPending, v1alpha1.RunnerIdle, v1alpha1.RunnerBusy, v1alpha1.RunnerFinished, v1alpha1.RunnerFailed}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		limit := random.Int32N(20)
		in := scaling.Input{
			Limits: v1alpha1.Scale{Max: limit, Min: random.Int32N(limit + 1), Idle: random.Int32N(limit + 1)},
			Jobs:   random.Int32N(25), Demand: demand.Demand{Known: random.IntN(20) > 0}, Suspended: random.IntN(5) == 0, Held: random.IntN(5) == 0, Now: now,
		}
		state := map[string]scaling.Runner{}
		in.Extra, in.Surge = random.Int32N(5), random.Int32N(5)
		var live int32
		for i := range random.IntN(25) {
			r := runner(fmt.Sprint("r", i), states[random.IntN(len(states))], time.Duration(random.IntN(60))*time.Second)
			r.Outdated, r.Deleting = random.IntN(3) == 0, random.IntN(6) == 0
			r.Settling = r.State == v1alpha1.RunnerFinished && random.IntN(2) == 0
			state[r.Name] = r
			in.Runners = append(in.Runners, r)
			if r.State == v1alpha1.RunnerPending || r.State == v1alpha1.RunnerIdle || r.State == v1alpha1.RunnerBusy {
				live++
			}
		}
		p := scaling.Decide(in)
		for _, name := range p.Drain {
			if r := state[name]; r.State == v1alpha1.RunnerBusy || r.Settling || r.Deleting {
				t.Fatalf("drains %+v\nof %+v", r, in)
			}
		}
		if bound := max(in.Limits.Max, in.Jobs) + in.Surge; p.Create < 0 || (p.Create > 0 && live+p.Create > bound) {
			t.Fatalf("creates %d beside %d live, bound %d\nof %+v", p.Create, live, bound, in)
		}
		if desired, _ := scaling.Desired(in); desired != p.Desired {
			t.Fatalf("plans for %d, desires %d", p.Desired, desired)
		}
		if !in.Demand.Known && (p.Create > 0 || len(p.Drain) > 0) {
			t.Fatalf("acts before GitHub was heard: %+v", p)
		}
		if in.Demand.Known && p.Desired < in.Jobs {
			t.Fatalf("desired %d is below %d accepted jobs", p.Desired, in.Jobs)
		}
		if (in.Suspended || in.Held) && in.Demand.Known && p.Announce != 0 {
			t.Fatalf("suspended or on hold, yet announces %d", p.Announce)
		}
	}
}

func TestANegativeCountOfGitHubIsNoJob(t *testing.T) {
	in := scaling.Input{Limits: v1alpha1.Scale{Max: 2}, Jobs: 2, Demand: demand.Demand{Known: true, Jobs: 2}, Now: now}
	want := scaling.Decide(in)
	in.Offered = -3
	if diff := cmp.Diff(want, scaling.Decide(in)); diff != "" {
		t.Errorf("with -3 jobs beyond (-none +got):\n%s", diff)
	}
}
