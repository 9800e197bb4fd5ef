// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaling_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/scaling"
)

func TestCircuit(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	failing := func(n int, cause v1alpha1.RunnerCause) scaling.Circuit {
		c := scaling.Circuit{Revision: "r1"}
		for range n {
			c = c.Failed(cause, "no such image", start, start)
		}
		return c
	}
	const text = " runners in a row failed (ImagePull: no such image); next try "
	cases := map[string]struct {
		circuit    scaling.Circuit
		after      time.Duration
		busy, free int32
		probes     int32
		open       bool
		want       scaling.Hold
		wait       time.Duration
	}{
		"two failures are tolerated":                  {circuit: failing(2, v1alpha1.CauseImagePull)},
		"want of room passes by itself":               {circuit: failing(9, v1alpha1.CauseUnschedulable)},
		"a success closes it":                         {circuit: failing(9, v1alpha1.CauseImagePull).Succeeded()},
		"open: what has a job goes on":                {circuit: failing(3, v1alpha1.CauseImagePull), busy: 4, open: true, want: scaling.Hold{Announce: 4, Reason: "3" + text + "13:46:50Z"}, wait: 10 * time.Second},
		"open: one is tried when its time has come":   {circuit: failing(3, v1alpha1.CauseImagePull), after: 10 * time.Second, open: true, want: scaling.Hold{Announce: 1, Create: 1, Reason: "3" + text + "13:46:50Z"}},
		"open: a probe under way is waited for":       {circuit: failing(3, v1alpha1.CauseImagePull), after: time.Minute, free: 1, probes: 1, open: true, want: scaling.Hold{Announce: 1, Reason: "3" + text + "13:46:50Z"}},
		"open: what was idle before gets a job":       {circuit: failing(3, v1alpha1.CauseImagePull), free: 2, open: true, want: scaling.Hold{Announce: 1, Reason: "3" + text + "13:46:50Z"}, wait: 10 * time.Second},
		"open: what was idle before is no probe":      {circuit: failing(3, v1alpha1.CauseImagePull), after: time.Minute, free: 2, open: true, want: scaling.Hold{Announce: 1, Create: 1, Reason: "3" + text + "13:46:50Z"}},
		"open: the next failure doubles the interval": {circuit: failing(5, v1alpha1.CauseImagePull), after: 10 * time.Second, open: true, want: scaling.Hold{Reason: "5" + text + "13:47:20Z"}, wait: 30 * time.Second},
		"open: the interval has an end":               {circuit: failing(60, v1alpha1.CauseImagePull), open: true, want: scaling.Hold{Reason: "60" + text + "13:51:40Z"}, wait: 5 * time.Minute},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.circuit.Open() != tc.open {
				t.Fatalf("open is %v, want %v", tc.circuit.Open(), tc.open)
			}
			if !tc.open {
				return
			}
			hold, wait := tc.circuit.Hold(tc.busy, tc.free, tc.probes, start.Add(tc.after))
			if diff := cmp.Diff(tc.want, hold); diff != "" || wait != tc.wait {
				t.Errorf("next probe in %s, want %s; hold (-want +got):\n%s", wait, tc.wait, diff)
			}
		})
	}
}

// Fifty runners that fail together count as one more failure, not as fifty doublings.
func TestABatchOfFailuresIsNotManyAttempts(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	var c scaling.Circuit
	for range 50 {
		c = c.Failed(v1alpha1.CauseImagePull, "no such image", start, start.Add(time.Minute))
	}
	if c.Interval() != scaling.ProbeMin {
		t.Errorf("the first probe comes after %s", c.Interval())
	}
	c = c.Failed(v1alpha1.CauseImagePull, "no such image", start.Add(2*time.Minute), start.Add(3*time.Minute))
	if c.Interval() != 2*scaling.ProbeMin {
		t.Errorf("the second probe comes after %s", c.Interval())
	}
}

func TestWhatBeganInTheSecondOfAFailureIsNewer(t *testing.T) {
	second := time.Unix(1_000_000, 0)
	c := scaling.Circuit{}.Failed(v1alpha1.CauseCrash, "", second, second.Add(260*time.Millisecond))
	for began, want := range map[time.Time]bool{second.Add(-time.Second): false, second: true, second.Add(time.Second): true} {
		if c.IsNewer(began) != want {
			t.Errorf("what began %s after the second of the failure: newer is %t", began.Sub(second), !want)
		}
	}
}

func TestOnlyFailuresThatTheTemplateOwnsSpeakAgainstIt(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	var c scaling.Circuit
	for i, cause := range []v1alpha1.RunnerCause{v1alpha1.CauseNeverConnected, v1alpha1.CauseCrash, v1alpha1.CauseGitHub, v1alpha1.CauseConfig} {
		c = c.Failed(cause, "", start, start.Add(time.Duration(i)*time.Minute))
	}
	if c.Failures != 3 || c.Owned != 2 || !c.First.Equal(start) {
		t.Errorf("%+v", c)
	}
}

// The next process restores a circuit from the status. An empty status opens none.
func TestACircuitIsRecalledFromTheStatus(t *testing.T) {
	at := time.Unix(1_000_000, 0)
	lasting, passing, both := scaling.Circuit{Revision: "r1"}, scaling.Circuit{Revision: "r1"}, scaling.Circuit{Revision: "r1"}
	for i := range int64(5) {
		lasting = lasting.Failed(v1alpha1.CauseImagePull, "no such image (a);\nlook", at, at)
		passing.Rounds = passing.Rounds.Failed(i+1, i+1, v1alpha1.CauseNode, "evicted", at.Add(time.Minute))
	}
	both = lasting
	both.Rounds = passing.Rounds
	for name, c := range map[string]scaling.Circuit{"closed": {Revision: "r1"}, "lasting causes": lasting, "passing causes": passing, "both": both} {
		got := scaling.Recall("r1", c.Status())
		if got.Open() != c.Open() || got.Rounds.Open() != c.Rounds.Open() || got.Open() && (got.Row() != c.Row() || !got.NextProbe().Equal(c.NextProbe())) ||
			got.Rounds.Open() && (got.Rounds.String() != c.Rounds.String() || !got.Rounds.Next().Equal(c.Rounds.Next())) || got.Last != c.Last || got.Owned != 0 {
			t.Errorf("%s: %+v is recalled as %+v", name, c, got)
		}
		if other := scaling.Recall("r2", c.Status()); other != (scaling.Circuit{Revision: "r2"}) {
			t.Errorf("%s: another revision's is recalled as %+v", name, other)
		}
	}
	if s := (scaling.Circuit{Revision: "r1"}).Status(); s != nil {
		t.Errorf("a closed circuit is recorded as %+v", s)
	}
	long := scaling.Circuit{}.Failed(v1alpha1.CauseCrash, strings.Repeat("x", 1000), at, at)
	if n := len(long.Status().Circuit.Message); n != 300 {
		t.Errorf("a message of %d bytes is recorded", n)
	}
}
