// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaling_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/demand"
	"github.com/corral-dev/corral/internal/scaling"
)

// FuzzDecide plans for arbitrary states: any numbers, and runners in any state, encoded in two bytes each. The general
// rules must hold.
func FuzzDecide(f *testing.F) {
	f.Add(int32(10), int32(2), int32(1), int32(5), int32(3), int32(1), int32(2), int32(2), byte(1), []byte("\x00\x00\x01\x08\x02\x10"))
	f.Add(int32(0), int32(0), int32(0), int32(7), int32(0), int32(0), int32(0), int32(1), byte(1), []byte("\x0a\x20\x12\x30\x02\xff\x01\x40"))
	f.Add(int32(math.MaxInt32), int32(100_000), int32(100_000), int32(math.MaxInt32), int32(1), int32(1), int32(math.MaxInt32), int32(math.MaxInt32), byte(5), []byte("\x01\x01"))
	f.Add(int32(3), int32(3), int32(3), int32(0), int32(-1), int32(-1), int32(3), int32(1), byte(7), []byte("\x09\x50\x09\x51\x09\x52\x01\x53\x24\x54\x44\x55"))
	f.Add(int32(math.MaxInt32-67), int32(100_000), int32(100_000), int32(math.MaxInt32-128), int32(1), int32(1), int32(1), int32(1), byte(9), []byte("0"))
	f.Fuzz(func(t *testing.T, maximum, minimum, idle, jobs, holdAnnounce, holdCreate, extra, surge int32, flags byte, runners []byte) {
		maximum = positive(maximum)
		in := scaling.Input{
			Limits: v1alpha1.Scale{Max: maximum, Min: min(positive(minimum), maximum), Idle: min(positive(idle), maximum)}, JobsWait: flags&8 != 0,
			Jobs: positive(jobs), Demand: demand.Demand{Known: flags&1 != 0}, Suspended: flags&2 != 0, Held: flags&16 != 0, Now: now, Extra: positive(extra), Surge: positive(surge), Runners: fuzzedRunners(runners),
		}
		if flags&4 != 0 {
			in.Holds = []scaling.Hold{{Announce: positive(holdAnnounce), Create: positive(holdCreate), Reason: "held back"}}
		}
		before := slices.Clone(in.Runners)
		p := scaling.Decide(in)
		for _, complaint := range broken(in, p) {
			t.Errorf("%s: %+v\nof %+v", complaint, p, in)
		}
		if diff := cmp.Diff(before, in.Runners); diff != "" {
			t.Errorf("it changed what it decided on: %s", diff)
		}
		if diff := cmp.Diff(p, scaling.Decide(in)); diff != "" {
			t.Errorf("it decides otherwise the second time: %s", diff)
		}
	})
}

func positive(n int32) int32 {
	if n < 0 {
		return -(n + 1)
	}
	return n
}

// fuzzedRunners creates a runner from every two bytes: its state and flags, and its time in the state.
func fuzzedRunners(bytes []byte) []scaling.Runner {
	states := []v1alpha1.RunnerState{v1alpha1.RunnerPending, v1alpha1.RunnerIdle, v1alpha1.RunnerBusy, v1alpha1.RunnerFinished, v1alpha1.RunnerFailed}
	var runners []scaling.Runner
	for i := 0; i+1 < len(bytes) && i < 400; i += 2 {
		mark := bytes[i]
		r := scaling.Runner{
			Name: fmt.Sprint("r", i), State: states[int(mark&7)%len(states)], Outdated: mark&8 != 0, Deleting: mark&16 != 0,
			Since: now.Add(-time.Duration(int8(bytes[i+1])) * time.Second), // a clock may be wrong: some are in the future
		}
		r.Settling = mark&32 != 0 && r.State == v1alpha1.RunnerFinished
		runners = append(runners, r)
	}
	return runners
}

// broken lists the rules that a plan breaks.
func broken(in scaling.Input, p scaling.Plan) []string {
	var live, busy, running, supply int64
	byName := map[string]scaling.Runner{}
	for _, r := range in.Runners {
		byName[r.Name] = r
		alive := r.State == v1alpha1.RunnerPending || r.State == v1alpha1.RunnerIdle || r.State == v1alpha1.RunnerBusy
		if r.State == v1alpha1.RunnerBusy {
			busy++
		}
		if r.Settling || r.State == v1alpha1.RunnerBusy || alive && !r.Deleting {
			supply++
		}
		if r.Settling || r.State == v1alpha1.RunnerBusy || r.State == v1alpha1.RunnerIdle && !r.Deleting {
			running++
		}
		if alive {
			live++
		}
	}
	var idle int64 // that it removes
	seen := map[string]bool{}
	var complaints []string
	complain := func(isBroken bool, complaint string) {
		if isBroken {
			complaints = append(complaints, complaint)
		}
	}
	for _, name := range p.Drain {
		r := byName[name]
		complain(seen[name], "it ends one runner twice")
		complain(r.State == v1alpha1.RunnerBusy || r.Settling || r.Deleting, "it ends a runner with a job, or one that is ended")
		complain(in.Now.Sub(r.Since) < scaling.Protection, "it ends a runner that a job may be on its way to")
		seen[name] = true
		if r.State == v1alpha1.RunnerIdle {
			idle++
		}
	}
	drained, extra, surge := int64(len(p.Drain)), int64(min(in.Extra, in.Surge)), int64(in.Surge)
	jobs, limit, desired := int64(in.Jobs), int64(in.Limits.Max), int64(p.Desired)
	if in.JobsWait {
		jobs = min(jobs, limit)
	}
	complain(p.Create < 0 || p.Desired < 0 || p.Supply < 0 || p.Announce < 0 || p.LookAgain < 0, "a number is negative")
	complain(p.Reason == "", "it gives no reason")
	complain(p.Create > 0 && live+int64(p.Create) > max(limit, jobs)+surge, "it creates above the bound")
	complain(p.Create > 0 && supply+int64(p.Create) > desired+extra, "it creates more than is desired")
	complain(p.Create > 0 && drained > 0, "it creates and ends runners")
	complain(drained > 0 && supply-drained < desired+extra, "it ends more than the surplus")
	complain(idle > 0 && running-idle < desired, "it ends idle runners that others don't stand in for yet")
	complain(int64(p.Announce) > max(busy, limit), "it accepts more than the limit")
	if !in.Demand.Known {
		complain(p.Create > 0 || len(p.Drain) > 0, "it acts before GitHub was heard")
		return complaints
	}
	complain(desired < jobs || desired > max(jobs, limit), "what it desires is below the accepted jobs or above the limit")
	complain(!in.Suspended && desired < int64(in.Limits.Min), "what it desires is below min")
	complain((in.Suspended || in.Held) && p.Announce != 0, "suspended or on hold, it accepts work")
	complain(!in.Suspended && !in.Held && int64(p.Announce) < busy, "it accepts less than it has")
	complain(len(in.Holds) == 0 && p.Create == 0 && supply < desired && live < max(limit, jobs), "it leaves jobs without runners although there is room")
	for _, h := range in.Holds {
		complain(p.Create > h.Create || int64(p.Announce) > max(busy, int64(h.Announce)), "it goes beyond what holds it back")
	}
	return complaints
}
