// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/rollout"
)

var now = time.Unix(1_000_000, 0)

// runnersOf returns runners of a revision that have been in their state for an hour.
func runnersOf(revision string, state v1alpha1.RunnerState, n int) []rollout.Runner {
	var list []rollout.Runner
	for i := range n {
		r := rollout.Runner{Name: fmt.Sprintf("%s-%s-%d", revision, state, i), Revision: revision, State: state, Since: now.Add(-time.Hour)}
		if state != v1alpha1.RunnerPending {
			r.Started = r.Since
		}
		list = append(list, r)
	}
	return list
}

func idle(revision string, n int) []rollout.Runner {
	return runnersOf(revision, v1alpha1.RunnerIdle, n)
}
func busy(revision string, n int) []rollout.Runner {
	return runnersOf(revision, v1alpha1.RunnerBusy, n)
}
func pending(revision string, n int) []rollout.Runner {
	return runnersOf(revision, v1alpha1.RunnerPending, n)
}

// persistent makes runners outlive their jobs.
func persistent(list []rollout.Runner) []rollout.Runner {
	for i := range list {
		list[i].Persists = true
	}
	return list
}

// worked sets the end of the runners' last job.
func worked(list []rollout.Runner, at time.Time) []rollout.Runner {
	for i := range list {
		list[i].Worked = at
	}
	return list
}

// young returns idle runners that have just started.
func young(revision string, n int) []rollout.Runner {
	list := idle(revision, n)
	for i := range list {
		list[i].Started, list[i].Since = now, now
	}
	return list
}

func state(from, to string, phase v1alpha1.UpdatePhase) *v1alpha1.UpdateStatus {
	return &v1alpha1.UpdateStatus{From: from, To: to, Phase: phase, Since: metav1.Time{Time: now.Add(-time.Hour)}, Reason: "as it was"}
}

// outcome is the observable result of a plan.
type outcome struct {
	Phase, From          string
	Reason               string
	Extra, Surge         int32
	End                  []string
	Next3                []string // revisions of the next three runners
	InForce              string
	Updated              bool
	LookAgain, PhaseAges time.Duration
}

func outcomeOf(p rollout.Plan) outcome {
	o := outcome{Extra: p.Extra, Surge: p.Surge, End: p.End, InForce: p.InForce, Updated: p.Updated, LookAgain: p.LookAgain, Next3: []string{p.Of(0), p.Of(1), p.Of(2)}}
	if s := p.State; s != nil {
		o.Phase, o.From, o.Reason, o.PhaseAges = string(s.Phase), s.From, s.Reason, now.Sub(s.Since.Time)
	}
	return o
}

func TestNext(t *testing.T) {
	rolling := rollout.Bounds{Strategy: v1alpha1.RollingUpdate, MaxSurge: 2}
	tried := rollout.Bounds{Strategy: v1alpha1.RollingUpdate, MaxSurge: 2, Canary: 2, Pause: 5 * time.Minute}
	allA, allB, aab := []string{"A", "A", "A"}, []string{"B", "B", "B"}, []string{"B", "A", "A"}
	broken := rollout.Record{Owned: 3, Open: true, First: now.Add(-time.Minute), Last: now, Message: "3 runners in a row failed (ImagePull: no such image)"}
	failsOn := broken
	failsOn.First = now.Add(-20 * time.Minute)
	astray := rollout.Record{Open: true, First: now.Add(-time.Minute), Last: now, Message: "3 runners in a row failed (NeverConnected: no network)"}
	probing := astray
	probing.Probe = true
	due, open := broken, rollout.Record{Open: true, First: now.Add(-time.Hour), Last: now.Add(-30 * time.Minute)}
	due.Probe = true
	openDue := open
	openDue.Probe = true
	cases := map[string]struct {
		in   rollout.Input
		want outcome
	}{
		"nothing changed": {
			in:   rollout.Input{Stored: "B", Runners: slices.Concat(idle("B", 2), busy("A", 1))},
			want: outcome{InForce: "B", Updated: true, Next3: allB},
		},
		"a first template is no update": {
			in:   rollout.Input{},
			want: outcome{InForce: "B", Updated: true, Next3: allB},
		},
		"at zero, it is done at once; the former is kept until the new one did well": {
			in: rollout.Input{Stored: "A"},
			want: outcome{Phase: "Rolling", From: "A", InForce: "B", Updated: true, Next3: allB,
				Reason: "all runners are replaced; Corral keeps A until a runner of B succeeds"},
		},
		"it has done well when one had a job": {
			in:   rollout.Input{State: state("A", "B", "Rolling"), Tried: []time.Time{now}},
			want: outcome{InForce: "B", Updated: true, Next3: allB},
		},
		"an idle one has to last": {
			in: rollout.Input{State: state("A", "B", "Rolling"), Desired: 1, Runners: young("B", 1)},
			want: outcome{Phase: "Rolling", From: "A", InForce: "B", Updated: true, Next3: allB, LookAgain: time.Minute, PhaseAges: time.Hour,
				Reason: "all runners are replaced; Corral keeps A until a runner of B succeeds"},
		},
		"recreate: all without a job end at once": {
			in: rollout.Input{Stored: "A", Desired: 4, Bounds: rollout.Bounds{Strategy: v1alpha1.Recreate, MaxSurge: 2}, Runners: slices.Concat(busy("A", 1), idle("A", 2), pending("A", 1))},
			want: outcome{Phase: "Rolling", From: "A", InForce: "B", Updated: true, Next3: allB, End: []string{"A-Pending-0", "A-Idle-0", "A-Idle-1"},
				Reason: "all runners are replaced; Corral keeps A until a runner of B succeeds"},
		},
		"new ones first, within the surge": {
			in: rollout.Input{Stored: "A", Desired: 4, Bounds: rolling, Runners: idle("A", 4)},
			want: outcome{Phase: "Rolling", From: "A", InForce: "B", Extra: 2, Surge: 2, Next3: allB,
				Reason: "4 runners with previous templates left to replace"},
		},
		"old ones end as new ones run; starting ones first": {
			in: rollout.Input{State: state("A", "B", "Rolling"), Desired: 5, Bounds: rolling, Runners: slices.Concat(idle("A", 2), pending("A", 1), busy("A", 1), young("B", 3))},
			want: outcome{Phase: "Rolling", From: "A", InForce: "B", Extra: 0, Surge: 2, End: []string{"A-Pending-0", "A-Idle-0"}, Next3: allB, PhaseAges: time.Hour,
				Reason: "1 runner with previous templates left to replace"},
		},
		"the desired number takes what may be made before the surge does": {
			in: rollout.Input{State: state("A", "B", "Canary"), Desired: 4, Bounds: tried, Runners: slices.Concat(idle("A", 1), idle("B", 1))},
			want: outcome{Phase: "Canary", From: "A", InForce: "B", Surge: 2, Next3: aab, PhaseAges: time.Hour,
				Reason: "1 of 2 canaries run; they must run without failures for 5m0s"},
		},
		"a canary that is not proven stands in for none": {
			in: rollout.Input{State: state("A", "B", "Canary"), Desired: 4, Bounds: tried, Runners: slices.Concat(idle("A", 4), young("B", 2))},
			want: outcome{Phase: "Canary", From: "A", InForce: "B", Extra: 2, Surge: 2, Next3: allA, PhaseAges: time.Hour, LookAgain: time.Minute,
				Reason: "2 of 2 canaries run; they must run without failures for 5m0s"},
		},
		"canaries may be unavailable, no more": {
			in: rollout.Input{Stored: "A", Desired: 8, Bounds: rollout.Bounds{Strategy: v1alpha1.RollingUpdate, MaxUnavailable: 5, Canary: 1, Pause: time.Minute}, Runners: idle("A", 8)},
			want: outcome{Phase: "Canary", From: "A", InForce: "B", End: []string{"A-Idle-0"}, Next3: aab,
				Reason: "0 of 1 canaries run; they must run without failures for 1m0s"},
		},
		"canaries did well for the pause": {
			in: rollout.Input{State: state("A", "B", "Canary"), Desired: 4, Bounds: tried, Runners: slices.Concat(idle("A", 2), idle("B", 1), busy("B", 1))},
			want: outcome{Phase: "Rolling", From: "A", InForce: "B", Extra: 2, Surge: 2, Next3: allB,
				Reason: "2 runners with previous templates left to replace"},
		},
		"canaries that had a job and are gone count": {
			in:   rollout.Input{State: state("A", "B", "Canary"), Bounds: tried, Tried: []time.Time{now.Add(-6 * time.Minute)}, Runners: busy("A", 1), Desired: 1},
			want: outcome{InForce: "B", Updated: true, Next3: allB},
		},
		"a canary is none that is being ended": {
			in: rollout.Input{State: state("A", "B", "Canary"), Bounds: rollout.Bounds{Strategy: v1alpha1.RollingUpdate, MaxSurge: 1, Canary: 1, Pause: time.Minute}, Desired: 1,
				Runners: []rollout.Runner{{Name: "b", Revision: "B", State: v1alpha1.RunnerIdle, Deleting: true, Started: now.Add(-time.Hour)}}},
			want: outcome{Phase: "Canary", From: "A", InForce: "B", Surge: 1, Next3: aab, PhaseAges: time.Hour,
				Reason: "0 of 1 canaries run; they must run without failures for 1m0s"},
		},
		"a canary step that was passed isn't gone back to": {
			in: rollout.Input{State: state("A", "B", "Rolling"), Desired: 2, Bounds: tried, Runners: slices.Concat(idle("A", 1), busy("A", 1))},
			want: outcome{Phase: "Rolling", From: "A", InForce: "B", Extra: 1, Surge: 2, Next3: allB, PhaseAges: time.Hour,
				Reason: "1 runner with previous templates left to replace"},
		},
		"held: nothing ends, what is under way stays, new ones are of the former": {
			in:   rollout.Input{State: state("A", "B", "Rolling"), Hold: "paused", Desired: 4, Bounds: rolling, Runners: slices.Concat(idle("A", 4), idle("B", 2))},
			want: outcome{Phase: "Held", From: "A", InForce: "B", Extra: 2, Surge: 2, Next3: allA, Reason: "paused"},
		},
		"held at zero": {
			in:   rollout.Input{State: state("A", "B", "Held"), Hold: "paused", Bounds: rolling, Runners: idle("B", 2)},
			want: outcome{Phase: "Held", From: "A", InForce: "B", Next3: allA, Reason: "paused", PhaseAges: time.Hour},
		},
		"held, and the former can't be made": {
			in:   rollout.Input{Stored: "A", Hold: "paused", Desired: 1, Bounds: rolling, Usable: []string{"B"}, Runners: idle("A", 1)},
			want: outcome{Phase: "Held", InForce: "B", Next3: allB, Reason: "paused"},
		},
		"what is replaced can't be held": {
			in: rollout.Input{State: state("A", "B", "Rolling"), Hold: "paused", Bounds: rolling},
			want: outcome{Phase: "Rolling", From: "A", InForce: "B", Updated: true, Next3: allB, PhaseAges: time.Hour,
				Reason: "all runners are replaced; Corral keeps A until a runner of B succeeds"},
		},
		"what may be made no more is held in any phase": {
			in:   rollout.Input{State: state("A", "B", "Rolling"), Denied: "policies deny it", Desired: 1, Bounds: rolling, Runners: busy("B", 1)},
			want: outcome{Phase: "Held", From: "A", InForce: "B", Next3: allA, Reason: "policies deny it"},
		},
		"what may be made no more, and nothing to go back to": {
			in:   rollout.Input{Stored: "B", Denied: "policies deny it"},
			want: outcome{InForce: "B", Updated: true, Next3: allB},
		},
		"without room nothing moves": {
			in:   rollout.Input{Stored: "A", Desired: 2, Bounds: rollout.Bounds{Strategy: v1alpha1.RollingUpdate}, Runners: idle("A", 2)},
			want: outcome{Phase: "Held", From: "A", InForce: "B", Next3: allA, Reason: "neither surge nor unavailability is allowed"},
		},
		"thaw goes on with the canaries": {
			in: rollout.Input{State: state("A", "B", "Held"), Desired: 2, Bounds: tried, Runners: idle("A", 2)},
			want: outcome{Phase: "Canary", From: "A", InForce: "B", Extra: 2, Surge: 2, Next3: []string{"B", "B", "A"},
				Reason: "0 of 2 canaries run; they must run without failures for 5m0s"},
		},
		"on idle: none ends": {
			in: rollout.Input{Stored: "A", Desired: 2, Bounds: rollout.Bounds{Strategy: v1alpha1.OnIdle, MaxSurge: 2}, Runners: idle("A", 2)},
			want: outcome{Phase: "Rolling", From: "A", InForce: "B", Next3: allB,
				Reason: "2 runners with previous templates left, until their next job"},
		},
		"a job doesn't end the runners: those with one are replaced after it": {
			in: rollout.Input{State: state("A", "B", "Rolling"), Desired: 2, Bounds: rolling, Runners: slices.Concat(persistent(busy("A", 1)), idle("B", 1))},
			want: outcome{Phase: "Rolling", From: "A", InForce: "B", Next3: allB, PhaseAges: time.Hour,
				Reason: "1 runner with previous templates left to replace"},
		},
		"on idle, and a job doesn't end the runners: the update does so after one": {
			in: rollout.Input{State: state("A", "B", "Rolling"), Desired: 2, Bounds: rollout.Bounds{Strategy: v1alpha1.OnIdle}, Runners: slices.Concat(
				worked(persistent(idle("A", 1)), now), worked(persistent(idle("A2", 1)), now.Add(-2*time.Hour)), persistent(idle("A3", 1)))},
			want: outcome{Phase: "Rolling", From: "A", InForce: "B", Next3: allB, PhaseAges: time.Hour, End: []string{"A-Idle-0"},
				Reason: "2 runners with previous templates left, until their next job"},
		},
		"rolled back: starting ones end, idle ones once they are replaced": {
			in: rollout.Input{State: state("A", "B", "Canary"), Desired: 4, Bounds: tried, Records: map[string]rollout.Record{"B": broken},
				Runners: slices.Concat(idle("A", 2), busy("B", 1), idle("B", 1), pending("B", 1))},
			want: outcome{Phase: "RolledBack", From: "A", InForce: "A", Extra: 1, Surge: 2, End: []string{"B-Pending-0"}, Next3: allA,
				Reason: "3 runners in a row failed (ImagePull: no such image): A stays in force until spec.template or the annotation corral.dev/retry changes"},
		},
		"rolled back, it stays so with the same words": {
			in:   rollout.Input{State: state("A", "B", "RolledBack"), Hold: "paused", Desired: 1, Bounds: rolling, Runners: slices.Concat(idle("A", 1), idle("B", 1))},
			want: outcome{Phase: "RolledBack", From: "A", InForce: "A", Surge: 2, End: []string{"B-Idle-0"}, Next3: allA, Reason: "as it was", PhaseAges: time.Hour},
		},
		"rolled back, until the former can't be made": {
			in:   rollout.Input{State: state("A", "B", "RolledBack"), Bounds: rolling, Usable: []string{"B"}},
			want: outcome{InForce: "B", Updated: true, Next3: allB},
		},
		"rolled back, the former fails too: one of the new one is tried": {
			in:   rollout.Input{State: state("A", "B", "RolledBack"), Desired: 2, Bounds: rolling, Records: map[string]rollout.Record{"A": open, "B": due}},
			want: outcome{Phase: "RolledBack", From: "A", InForce: "A", Next3: aab, Reason: "as it was", PhaseAges: time.Hour},
		},
		"but not before its probe is due": {
			in:   rollout.Input{State: state("A", "B", "RolledBack"), Desired: 2, Bounds: rolling, Records: map[string]rollout.Record{"A": openDue, "B": broken}},
			want: outcome{Phase: "RolledBack", From: "A", InForce: "A", Next3: allA, Reason: "as it was", PhaseAges: time.Hour},
		},
		"what is tried starts, and is replaced by none while the former fails": {
			in: rollout.Input{State: state("A", "B", "RolledBack"), Desired: 2, Bounds: rolling, Runners: pending("B", 1),
				Records: map[string]rollout.Record{"A": open, "B": broken}},
			want: outcome{Phase: "RolledBack", From: "A", InForce: "A", Extra: 1, Surge: 2, Next3: allA, Reason: "as it was", PhaseAges: time.Hour},
		},
		"the former does well again: what is tried ends": {
			in: rollout.Input{State: state("A", "B", "RolledBack"), Desired: 2, Bounds: rolling, Runners: slices.Concat(idle("A", 1), pending("B", 1)),
				Records: map[string]rollout.Record{"B": broken}},
			want: outcome{Phase: "RolledBack", From: "A", InForce: "A", Surge: 2, End: []string{"B-Pending-0"}, Next3: allA, Reason: "as it was", PhaseAges: time.Hour},
		},
		"rolled back, and what failed is forgotten: that proves nothing": {
			in:   rollout.Input{State: state("A", "B", "RolledBack"), Desired: 2, Bounds: rolling, Runners: slices.Concat(idle("A", 1), busy("B", 1)), Tried: []time.Time{now}},
			want: outcome{Phase: "RolledBack", From: "A", InForce: "A", Next3: allA, Reason: "as it was", PhaseAges: time.Hour},
		},
		"what failed is forgotten and the former fails: one of the new one is tried": {
			in:   rollout.Input{State: state("A", "B", "RolledBack"), Desired: 2, Bounds: rolling, Records: map[string]rollout.Record{"A": openDue}},
			want: outcome{Phase: "RolledBack", From: "A", InForce: "A", Next3: aab, Reason: "as it was", PhaseAges: time.Hour},
		},
		"and no other until it has lasted": {
			in: rollout.Input{State: state("A", "B", "RolledBack"), Desired: 2, Bounds: rolling, Runners: young("B", 1), Records: map[string]rollout.Record{"A": open}},
			want: outcome{Phase: "RolledBack", From: "A", InForce: "A", Extra: 1, Surge: 2, Next3: allA, Reason: "as it was", PhaseAges: time.Hour,
				LookAgain: time.Minute},
		},
		"the new one does well and the former fails: the update goes on": {
			in: rollout.Input{State: state("A", "B", "RolledBack"), Desired: 2, Bounds: tried, Runners: slices.Concat(pending("A", 1), busy("B", 1)), Records: map[string]rollout.Record{"A": open}},
			want: outcome{Phase: "Rolling", From: "A", InForce: "B", Surge: 2, Next3: allB, Extra: 1,
				Reason: "1 runner with previous templates left to replace"},
		},
		"a new one that did well before it failed is no reason to go on": {
			in: rollout.Input{State: state("A", "B", "RolledBack"), Desired: 2, Bounds: rolling, Runners: busy("B", 1), Tried: []time.Time{now.Add(-time.Hour)},
				Records: map[string]rollout.Record{"A": open, "B": {Owned: 1, First: now, Last: now}}},
			want: outcome{Phase: "RolledBack", From: "A", InForce: "A", Next3: aab, Reason: "as it was", PhaseAges: time.Hour},
		},
		"paused, the new one isn't tried though both fail": {
			in:   rollout.Input{State: state("A", "B", "RolledBack"), Hold: "paused", Desired: 2, Bounds: rolling, Records: map[string]rollout.Record{"A": open, "B": due}},
			want: outcome{Phase: "RolledBack", From: "A", InForce: "A", Next3: allA, Reason: "as it was", PhaseAges: time.Hour},
		},
		"paused, the update doesn't go on though the new one does well": {
			in:   rollout.Input{State: state("A", "B", "RolledBack"), Hold: "paused", Desired: 2, Bounds: rolling, Runners: busy("B", 1), Records: map[string]rollout.Record{"A": open}},
			want: outcome{Phase: "RolledBack", From: "A", InForce: "A", Next3: allA, Reason: "as it was", PhaseAges: time.Hour},
		},
		"what may not be made isn't tried though both fail": {
			in: rollout.Input{State: state("A", "B", "RolledBack"), Denied: "policies deny it", Usable: []string{"A"}, Desired: 2, Bounds: rolling,
				Records: map[string]rollout.Record{"A": open, "B": due}},
			want: outcome{Phase: "RolledBack", From: "A", InForce: "A", Next3: allA, Reason: "as it was", PhaseAges: time.Hour},
		},
		"rolled back, until another edit: from what was in force": {
			in: rollout.Input{State: state("A", "C", "RolledBack"), Stored: "C", Desired: 1, Bounds: rolling, Runners: idle("A", 1)},
			want: outcome{Phase: "Rolling", From: "A", InForce: "B", Extra: 1, Surge: 2, Next3: allB,
				Reason: "1 runner with previous templates left to replace"},
		},
		"the former fails too: the template isn't to blame": {
			in: rollout.Input{State: state("A", "B", "Rolling"), Desired: 2, Bounds: rolling, Runners: idle("A", 2),
				Records: map[string]rollout.Record{"B": broken, "A": {Owned: 1, First: now, Last: now}}},
			want: outcome{Phase: "Rolling", From: "A", InForce: "B", Extra: 2, Surge: 2, Next3: allB, PhaseAges: time.Hour,
				Reason: "2 runners with previous templates left to replace"},
		},
		"the former failed once with it, and the template fails on": {
			in: rollout.Input{State: state("A", "B", "Rolling"), Desired: 2, Bounds: rolling, Runners: idle("A", 2),
				Records: map[string]rollout.Record{"B": failsOn, "A": {Owned: 1, First: now.Add(-15 * time.Minute), Last: now.Add(-15 * time.Minute)}}},
			want: outcome{Phase: "RolledBack", From: "A", InForce: "A", Next3: allA,
				Reason: "3 runners in a row failed (ImagePull: no such image): A stays in force until spec.template or the annotation corral.dev/retry changes"},
		},
		"the former failed before": {
			in: rollout.Input{State: state("A", "B", "Rolling"), Desired: 2, Bounds: rolling, Runners: idle("A", 2),
				Records: map[string]rollout.Record{"B": broken, "A": {Owned: 1, First: now.Add(-time.Hour), Last: now.Add(-time.Hour)}}},
			want: outcome{Phase: "RolledBack", From: "A", InForce: "A", Next3: allA,
				Reason: "3 runners in a row failed (ImagePull: no such image): A stays in force until spec.template or the annotation corral.dev/retry changes"},
		},
		"the former is known to fail: a new one is tried at once": {
			in: rollout.Input{Stored: "A", Desired: 2, Bounds: tried, Runners: idle("A", 1), Records: map[string]rollout.Record{"A": broken}},
			want: outcome{Phase: "Rolling", From: "A", InForce: "B", Extra: 1, Surge: 2, Next3: allB,
				Reason: "1 runner with previous templates left to replace"},
		},
		"and isn't gone back to": {
			in: rollout.Input{State: state("A", "B", "Rolling"), Desired: 1, Bounds: rolling, Runners: idle("A", 1),
				Records: map[string]rollout.Record{"B": broken, "A": {Open: true, Last: now.Add(-2 * time.Minute)}}},
			want: outcome{Phase: "Rolling", From: "A", InForce: "B", Extra: 1, Surge: 2, Next3: allB, PhaseAges: time.Hour,
				Reason: "1 runner with previous templates left to replace"},
		},
		"nor is it given up while both fail: one is tried": {
			in: rollout.Input{State: state("A", "B", "Rolling"), Desired: 2, Bounds: rolling, Records: map[string]rollout.Record{"B": broken, "A": openDue}},
			want: outcome{Phase: "Rolling", From: "A", InForce: "B", Updated: true, Next3: []string{"A", "B", "B"}, PhaseAges: time.Hour,
				Reason: "all runners are replaced; Corral keeps A until a runner of B succeeds"},
		},
		"while nodes refuse its pods, runners of the previous template are created": {
			in: rollout.Input{State: state("A", "B", "Rolling"), Desired: 4, Bounds: rolling, Runners: idle("A", 3),
				Records: map[string]rollout.Record{"B": {Paced: true}}},
			want: outcome{Phase: "Rolling", From: "A", InForce: "B", Surge: 2, Next3: allA, PhaseAges: time.Hour,
				Reason: "3 runners with previous templates left to replace"},
		},
		"while nodes refuse its pods, no canary is created": {
			in: rollout.Input{State: state("A", "B", "Canary"), Desired: 4, Bounds: tried, Runners: idle("A", 4),
				Records: map[string]rollout.Record{"B": {Paced: true}}},
			want: outcome{Phase: "Canary", From: "A", InForce: "B", Surge: 2, Next3: allA, PhaseAges: time.Hour,
				Reason: "0 of 2 canaries run; they must run without failures for 5m0s"},
		},
		"what may be the network's: the previous revision takes over, nothing ends": {
			in: rollout.Input{State: state("A", "B", "Rolling"), Desired: 4, Bounds: rollout.Bounds{Strategy: v1alpha1.RollingUpdate, MaxSurge: 2, MaxUnavailable: 4},
				Runners: idle("A", 4), Records: map[string]rollout.Record{"B": astray}},
			want: outcome{Phase: "Rolling", From: "A", InForce: "B", Surge: 2, Next3: allA, PhaseAges: time.Hour,
				Reason: "3 runners in a row failed (NeverConnected: no network); runners of A take over"},
		},
		"and one is tried now and then": {
			in: rollout.Input{State: state("A", "B", "Rolling"), Desired: 4, Bounds: rolling, Runners: idle("A", 4), Records: map[string]rollout.Record{"B": probing}},
			want: outcome{Phase: "Rolling", From: "A", InForce: "B", Extra: 1, Surge: 2, Next3: aab, PhaseAges: time.Hour,
				Reason: "3 runners in a row failed (NeverConnected: no network); runners of A take over"},
		},
		"not at zero": {
			in: rollout.Input{State: state("A", "B", "Rolling"), Bounds: rolling, Runners: idle("A", 1), Records: map[string]rollout.Record{"B": probing}},
			want: outcome{Phase: "Rolling", From: "A", InForce: "B", Surge: 2, Next3: aab, PhaseAges: time.Hour,
				Reason: "3 runners in a row failed (NeverConnected: no network); runners of A take over"},
		},
		"what fails isn't recreated with": {
			in: rollout.Input{State: state("A", "B", "Rolling"), Desired: 2, Bounds: rollout.Bounds{Strategy: v1alpha1.Recreate}, Runners: idle("A", 2), Records: map[string]rollout.Record{"B": astray}},
			want: outcome{Phase: "Rolling", From: "A", InForce: "B", Next3: allA, PhaseAges: time.Hour,
				Reason: "3 runners in a row failed (NeverConnected: no network); runners of A take over"},
		},
		"an edit in the middle: what is replaced stays the same": {
			in: rollout.Input{State: state("A", "C", "Rolling"), Stored: "C", Desired: 2, Bounds: rolling, Runners: slices.Concat(idle("A", 1), idle("C", 1))},
			want: outcome{Phase: "Rolling", From: "A", InForce: "B", Extra: 2, Surge: 2, Next3: allB,
				Reason: "2 runners with previous templates left to replace"},
		},
		"an edit in the middle, and what was replaced can't be made any more": {
			in:   rollout.Input{State: state("A", "C", "Rolling"), Stored: "C", Hold: "paused", Desired: 1, Bounds: rolling, Usable: []string{"B", "C"}, Runners: idle("C", 1)},
			want: outcome{Phase: "Held", From: "C", InForce: "B", Next3: []string{"C", "C", "C"}, Reason: "paused"},
		},
		"an update that is taken back is tried no more": {
			in: rollout.Input{State: state("B", "C", "Canary"), Stored: "C", Desired: 2, Bounds: tried, Runners: slices.Concat(idle("B", 1), idle("C", 1))},
			want: outcome{Phase: "Rolling", From: "B", InForce: "B", Extra: 1, Surge: 2, Next3: allB,
				Reason: "1 runner with previous templates left to replace"},
		},
		"held, an update that is taken back stays taken back": {
			in:   rollout.Input{State: state("B", "C", "Held"), Stored: "C", Hold: "paused", Desired: 1, Bounds: rolling, Runners: idle("C", 1)},
			want: outcome{Phase: "Held", From: "B", InForce: "B", Next3: allB, Reason: "paused"},
		},
		"the status is lost: the most common former revision it is": {
			in:   rollout.Input{Hold: "paused", Desired: 3, Bounds: rolling, Runners: slices.Concat(busy("A", 2), busy("C", 1), idle("D", 3))},
			want: outcome{Phase: "Held", From: "A", InForce: "B", Next3: allA, Reason: "paused"},
		},
		"the state is lost: busy ones are what an update leaves behind": {
			in:   rollout.Input{Stored: "B", Hold: "paused", Desired: 2, Bounds: rolling, Runners: busy("A", 2)},
			want: outcome{InForce: "B", Updated: true, Next3: allB},
		},
		"the state is lost, with something to replace": {
			in:   rollout.Input{Stored: "B", Hold: "paused", Desired: 2, Bounds: rolling, Runners: slices.Concat(idle("A", 1), idle("C", 1))},
			want: outcome{Phase: "Held", From: "A", InForce: "B", Next3: allA, Reason: "paused"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := tc.in
			in.To, in.Well, in.Now, in.JobsKnown = "B", time.Minute, now, true
			if in.Usable == nil {
				in.Usable = []string{"A", "B", "C"}
			}
			before := slices.Clone(in.Runners)
			if diff := cmp.Diff(tc.want, outcomeOf(rollout.Next(in)), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, in.Runners); diff != "" {
				t.Errorf("it changed what it plans on:\n%s", diff)
			}
			in.JobsKnown = false
			if p := rollout.Next(in); len(p.End) > 0 || p.Extra+p.Surge > 0 {
				t.Errorf("it goes on before GitHub was heard: %+v", p)
			}
		})
	}
}

func TestDeclared(t *testing.T) {
	number, percent := func(n int32) *intstr.IntOrString { v := intstr.FromInt32(n); return &v }, func(s string) *intstr.IntOrString { v := intstr.FromString(s); return &v }
	cases := map[string]struct {
		spec    v1alpha1.UpdateSpec
		desired int32
		want    rollout.Bounds
	}{
		"defaults":                     {desired: 10, want: rollout.Bounds{MaxSurge: 3}},
		"defaults for one":             {desired: 1, want: rollout.Bounds{MaxSurge: 1}},
		"defaults for none":            {want: rollout.Bounds{MaxUnavailable: 1}},
		"surge up, unavailable down":   {spec: v1alpha1.UpdateSpec{MaxSurge: percent("10%"), MaxUnavailable: percent("19%")}, desired: 15, want: rollout.Bounds{MaxSurge: 2, MaxUnavailable: 2}},
		"numbers":                      {spec: v1alpha1.UpdateSpec{MaxSurge: number(4), MaxUnavailable: number(3)}, want: rollout.Bounds{MaxSurge: 4, MaxUnavailable: 3}},
		"a number in words":            {spec: v1alpha1.UpdateSpec{MaxSurge: percent("7")}, want: rollout.Bounds{MaxSurge: 7}},
		"nothing left of either":       {spec: v1alpha1.UpdateSpec{MaxSurge: number(0), MaxUnavailable: percent("10%")}, desired: 5, want: rollout.Bounds{MaxUnavailable: 1}},
		"too large":                    {spec: v1alpha1.UpdateSpec{MaxSurge: percent("99999999999999999999%"), MaxUnavailable: percent("99999999999999999999")}, desired: 500, want: rollout.Bounds{MaxSurge: math.MaxInt32, MaxUnavailable: math.MaxInt32}},
		"no number":                    {spec: v1alpha1.UpdateSpec{MaxSurge: percent("many"), MaxUnavailable: number(-1)}, desired: 5, want: rollout.Bounds{MaxUnavailable: 1}},
		"canaries at zero":             {spec: v1alpha1.UpdateSpec{Canary: &v1alpha1.CanarySpec{Runners: *percent("10%")}}, want: rollout.Bounds{MaxUnavailable: 1, Canary: 1, Pause: 5 * time.Minute}},
		"canaries of many":             {spec: v1alpha1.UpdateSpec{Canary: canary(3, time.Second)}, desired: 4, want: rollout.Bounds{MaxSurge: 1, Canary: 3, Pause: time.Second}},
		"no canaries":                  {spec: v1alpha1.UpdateSpec{Canary: canary(0, time.Second)}, desired: 4, want: rollout.Bounds{MaxSurge: 1, Pause: time.Second}},
		"the pool desires a multitude": {spec: v1alpha1.UpdateSpec{MaxSurge: percent("300%")}, desired: math.MaxInt32, want: rollout.Bounds{MaxSurge: math.MaxInt32}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.want.Strategy = v1alpha1.RollingUpdate
			if diff := cmp.Diff(tc.want, rollout.Declared(tc.spec, tc.desired)); diff != "" {
				t.Errorf("bounds (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnAnswerNarrowsWhatItWasAskedAbout(t *testing.T) {
	declared := rollout.Bounds{Strategy: v1alpha1.RollingUpdate, MaxSurge: 3, MaxUnavailable: 2}
	atZero := rollout.Bounds{Strategy: v1alpha1.RollingUpdate, MaxUnavailable: 1}
	cases := map[string]struct{ bounds, asked, answer, want rollout.Bounds }{
		"as asked, when there was nothing":  {declared, atZero, atZero, declared},
		"less surge":                        {declared, declared, rollout.Bounds{Strategy: v1alpha1.OnIdle, MaxSurge: 1, MaxUnavailable: 2}, rollout.Bounds{Strategy: v1alpha1.OnIdle, MaxSurge: 1, MaxUnavailable: 2}},
		"less unavailability":               {declared, declared, rollout.Bounds{Strategy: v1alpha1.RollingUpdate, MaxSurge: 3}, rollout.Bounds{Strategy: v1alpha1.RollingUpdate, MaxSurge: 3}},
		"canaries where there were none":    {declared, declared, rollout.Bounds{Strategy: v1alpha1.RollingUpdate, MaxSurge: 3, MaxUnavailable: 2, Canary: 4}, rollout.Bounds{Strategy: v1alpha1.RollingUpdate, MaxSurge: 3, MaxUnavailable: 2, Canary: 4, Pause: v1alpha1.DefaultCanaryPause}},
		"fewer canaries than were declared": {rollout.Bounds{Canary: 5, Pause: 1}, rollout.Bounds{Canary: 5}, rollout.Bounds{Canary: 2}, rollout.Bounds{Canary: 2, Pause: 1}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.bounds.Narrowed(tc.asked, tc.answer)); diff != "" {
				t.Errorf("bounds (-want +got):\n%s", diff)
			}
		})
	}
}
