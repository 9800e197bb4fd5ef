// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/rollout"
)

// rollouts returns a policy with the elements of corral.update.rollout, one per line, starting at line 2.
func rollouts(elements ...string) Source {
	var b strings.Builder
	b.WriteString("package corral.update\n")
	for _, e := range elements {
		fmt.Fprintf(&b, "rollout contains %s\n", e)
	}
	return namespaced(b.String())
}

func TestTheStrictestUpdateWins(t *testing.T) {
	because := func(line int32) UpdateReason {
		return UpdateReason{Message: "r", Rule: v1alpha1.RuleReference{Policy: "RunnerPolicy/ci/p", Name: "corral.update.rollout", File: "p.rego", Line: line}}
	}
	rolling := Change{Strategy: "RollingUpdate", MaxSurge: 4, MaxUnavailable: 2}
	with := func(change func(*Update)) Update {
		u := Update{Bounds: rollout.Bounds{Strategy: v1alpha1.RollingUpdate, MaxSurge: 4, MaxUnavailable: 2}}
		change(&u)
		return u
	}
	cases := map[string]struct {
		elements []string
		change   Change
		want     Update
	}{
		"nothing said": {[]string{`{"hold": false, "reason": "r"}`}, rolling, with(func(*Update) {})},
		"hold": {[]string{`{"hold": true, "reason": "r", "until": "2026-05-02T00:00:00Z"}`, `{"hold": false, "reason": "r"}`}, rolling, with(func(u *Update) {
			u.Hold, u.Until, u.Reasons = true, time.Date(2026, 5, 2, 0, 0, 0, 0, time.UTC), []UpdateReason{because(2)}
		})},
		"the strictest strategy": {[]string{`{"strategy": "OnIdle", "reason": "r"}`, `{"strategy": "Recreate", "reason": "r"}`}, rolling, with(func(u *Update) {
			u.Strategy, u.Reasons = v1alpha1.OnIdle, []UpdateReason{because(2)}
		})},
		"a strategy less strict than declared": {[]string{`{"strategy": "RollingUpdate", "reason": "r"}`}, Change{Strategy: "OnIdle"}, Update{Bounds: rollout.Bounds{Strategy: v1alpha1.OnIdle}}},
		"a strategy stricter than declared": {
			[]string{`{"strategy": "RollingUpdate", "reason": "r"}`}, Change{Strategy: "Recreate", MaxSurge: 1},
			Update{Bounds: rollout.Bounds{Strategy: v1alpha1.RollingUpdate, MaxSurge: 1}, Reasons: []UpdateReason{because(2)}},
		},
		"lower numbers": {[]string{`{"maxSurge": 3, "maxUnavailable": 9, "reason": "r"}`, `{"maxSurge": 2, "reason": "r"}`, `{"maxUnavailable": 0, "reason": "r"}`}, rolling, with(func(u *Update) {
			u.MaxSurge, u.MaxUnavailable, u.Reasons = 2, 0, []UpdateReason{because(3), because(4)}
		})},
		"a canary": {[]string{`{"canary": 3, "reason": "r"}`, `{"canary": 2, "reason": "r"}`, `{"canary": 0, "reason": "r"}`}, rolling, with(func(u *Update) {
			u.Canary, u.Reasons = 2, []UpdateReason{because(3)}
		})},
		"no room is a hold": {[]string{`{"maxSurge": 0, "reason": "r"}`, `{"maxUnavailable": 0, "reason": "r"}`}, rolling, with(func(u *Update) {
			u.MaxSurge, u.MaxUnavailable, u.Hold, u.Reasons = 0, 0, true, []UpdateReason{because(2), because(3)}
		})},
		"no room by a rule of what was declared": {[]string{`{"maxSurge": 0, "reason": "r"}`}, Change{Strategy: "RollingUpdate", MaxSurge: 1}, Update{
			Bounds: rollout.Bounds{Strategy: v1alpha1.RollingUpdate}, Hold: true, Reasons: []UpdateReason{because(2)},
		}},
		"no room needed": {[]string{`{"maxSurge": 0, "maxUnavailable": 0, "reason": "r"}`}, Change{Strategy: "OnIdle", MaxSurge: 1}, Update{
			Bounds: rollout.Bounds{Strategy: v1alpha1.OnIdle}, Reasons: []UpdateReason{because(2)},
		}},
		"Recreate has no room": {[]string{`{"hold": false, "reason": "r"}`}, Change{Strategy: "Recreate"}, Update{Bounds: rollout.Bounds{Strategy: v1alpha1.Recreate}}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC).UnixNano()
			got := boundBy(t, rollouts(c.elements...)).Update(t.Context(), UpdateInput{Pool: pool(), Change: c.change, Now: now})
			if diff := cmp.Diff(c.want, got, cmpopts.IgnoreFields(Update{}, "ID", "Digest")); diff != "" {
				t.Errorf("the update differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAuditTellsOfUpdates(t *testing.T) {
	p := audited(rollouts(`{"hold": true, "strategy": "OnIdle", "maxSurge": 1, "canary": 2, "reason": "r"}`, `{"maxUnavailable": 7, "reason": "r"}`))
	change := Change{Strategy: "RollingUpdate", MaxSurge: 4, MaxUnavailable: 2}
	got := boundBy(t, p).Update(t.Context(), UpdateInput{Pool: pool(), Change: change})
	want := Update{Bounds: rollout.Bounds{Strategy: v1alpha1.RollingUpdate, MaxSurge: 4, MaxUnavailable: 2}, Audit: []Audit{{
		"RunnerPolicy/ci/p",
		"the update would be held, strategy would be OnIdle, not RollingUpdate, maxSurge would be 1, not 4, canary would be 2, not 0: r (corral.update.rollout, p.rego:2)",
	}}}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Update{}, "ID", "Digest")); diff != "" {
		t.Errorf("the update differs (-want +got):\n%s", diff)
	}
}

func TestAnInvalidRolloutNamesItsRule(t *testing.T) {
	for element, want := range map[string]string{
		`{"reason": "r"}`: "it must have hold, strategy, maxSurge, maxUnavailable or canary",
		`{"strategy": lower("ONIDLE"), "reason": "r"}`: `strategy is RollingUpdate, Recreate or OnIdle, not "onidle"`,
		`{"canary": -1, "reason": "r"}`:                "canary is a whole number from 0 to 2147483647, not -1",
		`{"hold": "yes", "reason": "r"}`:               "hold is true or false, not string",
		`{"hold": true}`:                               "it must have a reason",
	} {
		got := boundBy(t, rollouts(element)).Update(t.Context(), UpdateInput{Pool: pool(), Change: Change{Strategy: "RollingUpdate", MaxSurge: 4}})
		void := Update{Failures: []Failure{{Policy: "RunnerPolicy/ci/p", Kind: InvalidAnswer, Message: "p.rego:2: corral.update.rollout: " + want}}}
		if diff := cmp.Diff(void, got, cmpopts.IgnoreFields(Update{}, "ID", "Digest")); diff != "" {
			t.Errorf("the update with %s differs (-want +got):\n%s", element, diff)
		}
	}
}
