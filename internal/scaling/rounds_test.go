// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaling_test

import (
	"encoding/json"
	"os"
	"slices"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/scaling"
)

// causes returns the RunnerCause values of the CRD, so that a new cause is tested as well.
func causes(t *testing.T) (causes []v1alpha1.RunnerCause) {
	t.Helper()
	text, err := os.ReadFile("../../charts/corral/files/crds/corral.dev_runners.yaml")
	if err != nil {
		t.Fatal(err)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(text, crd); err != nil {
		t.Fatal(err)
	}
	for _, value := range crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].Properties["cause"].Enum {
		var cause v1alpha1.RunnerCause
		if err := json.Unmarshal(value.Raw, &cause); err != nil {
			t.Fatal(err)
		}
		causes = append(causes, cause)
	}
	if len(causes) == 0 {
		t.Fatal("the API declares no causes")
	}
	return causes
}

// attemptsOf simulates a pool that needs one runner and whose runners all fail at once. It returns when the pool creates them.
func attemptsOf(cause v1alpha1.RunnerCause, until time.Duration) (made []time.Duration) {
	start := time.Unix(1_000_000, 0)
	circuit, rounds := scaling.Circuit{}, scaling.Rounds{}
	for now := start; now.Before(start.Add(until)); {
		wait := rounds.Left(now)
		if hold, left := circuit.Hold(0, 0, 0, now); circuit.Open() && hold.Create == 0 {
			wait = max(wait, left)
		}
		if wait > 0 {
			now = now.Add(wait)
			continue
		}
		made = append(made, now.Sub(start))
		number := int64(len(made))
		now = now.Add(100 * time.Millisecond)
		circuit = circuit.Failed(cause, "failed", now, now)
		rounds = rounds.Failed(number, number, cause, "failed", now)
	}
	return made
}

func TestNoCauseIsRepeatedAtFullSpeed(t *testing.T) {
	for _, cause := range causes(t) {
		t.Run(string(cause), func(t *testing.T) {
			made := attemptsOf(cause, 20*time.Minute)
			within := func(from, to time.Duration) int {
				return len(slices.DeleteFunc(slices.Clone(made), func(at time.Duration) bool { return at < from || at >= to }))
			}
			if n := within(0, time.Minute); n < 3 || n > 12 {
				t.Errorf("%d attempts in the first minute, at %v", n, made)
			}
			if n := within(10*time.Minute, 20*time.Minute); n < 2 || n > 20 {
				t.Errorf("%d attempts from minute 10 to 20, at %v", n, made)
			}
			if made[1] > 200*time.Millisecond {
				t.Errorf("the first retry is not immediate: %s", made[1])
			}
		})
	}
}

func TestRounds(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	at := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
	var r scaling.Rounds
	for n := range int64(20) { // one round, whose first runners are replaced while the others fail
		r = r.Failed(n+1, 20+n, v1alpha1.CauseRemoved, "gone", at(int(n)))
	}
	if _, holds := r.Hold(3, at(19)); r.Count != 1 || r.Issued != 20 || holds {
		t.Errorf("one round that failed is repeated at once: %+v", r)
	}
	r = r.Failed(21, 40, v1alpha1.CauseRemoved, "gone", at(30))
	why := r.String() + r.Next().UTC().Format("; next try 15:04:05Z")
	for now, want := range map[int]scaling.Hold{
		30: {Announce: 3, Reason: why},
		34: {Announce: 3, Reason: why},
		35: {Announce: 4, Create: 1<<31 - 1, Reason: why},
	} {
		if hold, holds := r.Hold(3, at(now)); !holds || hold != want {
			t.Errorf("after %d s: %+v, want %+v", now, hold, want)
		}
	}
	if r = r.Failed(50, 60, v1alpha1.CauseImagePull, "no such image", at(60)); r.Count != 2 {
		t.Errorf("a cause that the circuit counts is counted twice: %+v", r)
	}
	if r.Open() || !r.Failed(61, 61, v1alpha1.CauseSlow, "slow", at(90)).Open() {
		t.Errorf("the third round makes the pool unhealthy: %+v", r)
	}
}

func TestDeadlinesGrowWhileNoRunnerStartsInTime(t *testing.T) {
	const deadline = 10 * time.Second
	for _, tc := range []struct {
		cause v1alpha1.RunnerCause
		count int
		want  time.Duration
	}{
		{v1alpha1.CauseSlow, 0, deadline},
		{v1alpha1.CauseSlow, 1, 2 * deadline},
		{v1alpha1.CauseUnschedulable, 3, 8 * deadline},
		{v1alpha1.CauseGitHub, 60, scaling.PatienceMax},
		{v1alpha1.CauseRemoved, 9, deadline},
	} {
		if got := (scaling.Rounds{Count: tc.count, Cause: tc.cause}).Patience(deadline); got != tc.want {
			t.Errorf("%s, %d rounds: %s, want %s", tc.cause, tc.count, got, tc.want)
		}
	}
	if got := (scaling.Rounds{Count: 1, Cause: v1alpha1.CauseSlow}).Patience(2 * time.Hour); got != 2*time.Hour {
		t.Errorf("a longer deadline became %s", got)
	}
}
