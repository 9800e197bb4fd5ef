// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// team returns a policy in the pool's namespace with one limit per line, guard a cluster policy.
func team(elements ...string) Source { return namespaced(limits(elements...)) }

func guard(elements ...string) Source {
	return Source{Kind: KindClusterRunnerPolicy, Name: "guard", Modules: map[string]string{"g.rego": limits(elements...)}}
}

// mute is a rule that never holds.
const mute = `{"field": "max", "atMost": 0, "reason": "r"} if input.zone == "nowhere"`

func audited(s Source) Source {
	s.Mode = v1alpha1.PolicyAudit
	return s
}

// bound is what a rule makes of a number; rules are named FILE:LINE.
func bound(field string, declared, value int32, policy, file string, line int32) v1alpha1.LimitBound {
	return v1alpha1.LimitBound{
		Field: field, Declared: declared, Value: value, Reason: "r",
		Rule: v1alpha1.RuleReference{Policy: policy, Name: "corral.scaling.limit", File: file, Line: line},
	}
}

func TestLimitsAreComposedByNarrowing(t *testing.T) {
	const ci, cluster = "RunnerPolicy/ci/p", "ClusterRunnerPolicy/guard"
	cases := map[string]struct {
		policies []Source
		jobs     int32
		want     Scaling // of pool(): min 2, max 100, idle 4
	}{
		"nothing said": {[]Source{team(mute)}, 0, Scaling{Scale: Scale{Min: 2, Max: 100, Idle: 4}}},
		"a ceiling": {
			[]Source{team(`{"field": "max", "atMost": 60, "reason": "r"}`)}, 0,
			Scaling{Scale: Scale{Min: 2, Max: 60, Idle: 4}, Bounds: []v1alpha1.LimitBound{bound("max", 100, 60, ci, "p.rego", 2)}},
		},
		"a ceiling above": {[]Source{team(`{"field": "max", "atMost": 600, "reason": "r"}`)}, 0, Scaling{Scale: Scale{Min: 2, Max: 100, Idle: 4}}},
		"the lowest ceiling": {
			[]Source{team(`{"field": "max", "atMost": 60, "reason": "r"}`, `{"field": "max", "atMost": 50, "reason": "r"}`), guard(`{"field": "max", "atMost": 70, "reason": "r"}`)}, 0,
			Scaling{Scale: Scale{Min: 2, Max: 50, Idle: 4}, Bounds: []v1alpha1.LimitBound{bound("max", 100, 50, ci, "p.rego", 3)}},
		},
		"two rules of one value": {
			[]Source{team(`{"field": "max", "atMost": 60, "reason": "r"}`), guard(`{"field": "max", "atMost": 60, "reason": "r"}`)}, 0,
			Scaling{Scale: Scale{Min: 2, Max: 60, Idle: 4}, Bounds: []v1alpha1.LimitBound{bound("max", 100, 60, cluster, "g.rego", 2), bound("max", 100, 60, ci, "p.rego", 2)}},
		},
		"a team's floor below what is declared": {[]Source{team(`{"field": "max", "atLeast": 60, "reason": "r"}`)}, 0, Scaling{Scale: Scale{Min: 2, Max: 100, Idle: 4}}},
		"a team's floor above what is declared": {
			[]Source{team(`{"field": "min", "atLeast": 3, "reason": "r"}`)}, 0,
			Scaling{Scale: Scale{Min: 2, Max: 100, Idle: 4}, Conflicts: []string{
				"min: atLeast 3 of RunnerPolicy/ci/p, corral.scaling.limit, p.rego:2 has no say: only a ClusterRunnerPolicy may ask for more than the declared 2",
			}},
		},
		"a team's floor above a ceiling": {
			[]Source{team(`{"field": "max", "atLeast": 60, "reason": "r"}`, `{"field": "max", "atMost": 50, "reason": "r"}`)}, 0,
			Scaling{
				Scale: Scale{Min: 2, Max: 50, Idle: 4}, Bounds: []v1alpha1.LimitBound{bound("max", 100, 50, ci, "p.rego", 3)},
				Conflicts: []string{"max: atLeast 60 of RunnerPolicy/ci/p, corral.scaling.limit, p.rego:2 is beaten by atMost 50 of RunnerPolicy/ci/p, corral.scaling.limit, p.rego:3, so max is 50"},
			},
		},
		"a floor of the cluster": {
			[]Source{guard(`{"field": "idle", "atLeast": 9, "reason": "r"}`)}, 0,
			Scaling{Scale: Scale{Min: 2, Max: 100, Idle: 9}, Bounds: []v1alpha1.LimitBound{bound("idle", 4, 9, cluster, "g.rego", 2)}},
		},
		"a floor of the cluster above a team's ceiling": {
			[]Source{team(`{"field": "max", "atMost": 5, "reason": "r"}`), guard(`{"field": "max", "atLeast": 7, "reason": "r"}`)}, 0,
			Scaling{
				Scale: Scale{Min: 2, Max: 7, Idle: 4}, Bounds: []v1alpha1.LimitBound{bound("max", 100, 7, cluster, "g.rego", 2)},
				Conflicts: []string{"max: atMost 5 of RunnerPolicy/ci/p, corral.scaling.limit, p.rego:2 is beaten by atLeast 7 of ClusterRunnerPolicy/guard, corral.scaling.limit, g.rego:2, so max is 7"},
			},
		},
		"ceilings of the cluster beat its floors": {
			[]Source{guard(`{"field": "max", "atLeast": 700, "reason": "r"}`, `{"field": "max", "atMost": 80, "reason": "r"}`)}, 0,
			Scaling{
				Scale: Scale{Min: 2, Max: 80, Idle: 4}, Bounds: []v1alpha1.LimitBound{bound("max", 100, 80, cluster, "g.rego", 3)},
				Conflicts: []string{"max: atLeast 700 of ClusterRunnerPolicy/guard, corral.scaling.limit, g.rego:2 is beaten by atMost 80 of ClusterRunnerPolicy/guard, corral.scaling.limit, g.rego:3, so max is 80"},
			},
		},
		"min and idle are cut to max": {
			[]Source{team(`{"field": "max", "atMost": 1, "reason": "r"}`)}, 0,
			Scaling{Scale: Scale{Min: 1, Max: 1, Idle: 1}, Bounds: []v1alpha1.LimitBound{
				bound("max", 100, 1, ci, "p.rego", 2), bound("min", 2, 1, ci, "p.rego", 2), bound("idle", 4, 1, ci, "p.rego", 2),
			}},
		},
		"a floor of min is cut to max": {
			[]Source{guard(`{"field": "min", "atLeast": 500, "reason": "r"}`)}, 0,
			Scaling{
				Scale: Scale{Min: 100, Max: 100, Idle: 4}, Bounds: []v1alpha1.LimitBound{bound("min", 2, 100, cluster, "g.rego", 2)},
				Conflicts: []string{"min: atLeast 500 of ClusterRunnerPolicy/guard, corral.scaling.limit, g.rego:2 is more than max, so min is 100"},
			},
		},
		"hard by the rule that binds": {
			[]Source{team(`{"field": "max", "atMost": 60, "assignedJobs": "Wait", "reason": "r"}`)}, 0,
			Scaling{Scale: Scale{Min: 2, Max: 60, Idle: 4}, AssignedJobs: v1alpha1.AssignedJobsWait, Bounds: []v1alpha1.LimitBound{bound("max", 100, 60, ci, "p.rego", 2)}},
		},
		"hard at what is declared": {[]Source{team(`{"field": "max", "atMost": 100, "assignedJobs": "Wait", "reason": "r"}`)}, 0, Scaling{Scale: Scale{Min: 2, Max: 100, Idle: 4}, AssignedJobs: v1alpha1.AssignedJobsWait}},
		"a hard rule that another is below": {
			[]Source{team(`{"field": "max", "atMost": 50, "reason": "r"}`), guard(`{"field": "max", "atMost": 60, "assignedJobs": "Wait", "reason": "r"}`)}, 60,
			Scaling{Scale: Scale{Min: 2, Max: 50, Idle: 4}, Bounds: []v1alpha1.LimitBound{bound("max", 100, 50, ci, "p.rego", 2)}},
		},
		"a hard rule that there are more jobs than": {
			[]Source{team(`{"field": "max", "atMost": 50, "reason": "r"}`), guard(`{"field": "max", "atMost": 60, "assignedJobs": "Wait", "reason": "r"}`)}, 61,
			Scaling{Scale: Scale{Min: 2, Max: 50, Idle: 4}, AssignedJobs: v1alpha1.AssignedJobsWait, Bounds: []v1alpha1.LimitBound{bound("max", 100, 50, ci, "p.rego", 2)}},
		},
		"a hard rule that the cluster overrules": {
			[]Source{team(`{"field": "max", "atMost": 5, "assignedJobs": "Wait", "reason": "r"}`), guard(`{"field": "max", "atLeast": 7, "reason": "r"}`)}, 50,
			Scaling{
				Scale: Scale{Min: 2, Max: 7, Idle: 4}, Bounds: []v1alpha1.LimitBound{bound("max", 100, 7, cluster, "g.rego", 2)},
				Conflicts: []string{"max: atMost 5 of RunnerPolicy/ci/p, corral.scaling.limit, p.rego:2 is beaten by atLeast 7 of ClusterRunnerPolicy/guard, corral.scaling.limit, g.rego:2, so max is 7"},
			},
		},
		"the next time of all": {
			[]Source{team(
				`{"field": "max", "atMost": 300, "reason": "r", "until": "2026-05-01T06:00:00+02:00"}`,
				`{"field": "max", "atMost": 300, "reason": "r", "until": "2026-05-01T02:00:00Z"}`,
				`{"field": "max", "atMost": 300, "reason": "r", "until": 1777608000000000000}`,
			)}, 0,
			Scaling{Scale: Scale{Min: 2, Max: 100, Idle: 4}, Until: time.Date(2026, 5, 1, 4, 0, 0, 0, time.UTC)},
		},
		"audit": {
			[]Source{team(`{"field": "max", "atMost": 60, "reason": "r"}`), audited(guard(`{"field": "max", "atMost": 50, "assignedJobs": "Wait", "reason": "r"}`, `{"field": "min", "atLeast": 9, "reason": "more"}`))}, 0,
			Scaling{
				Scale: Scale{Min: 2, Max: 60, Idle: 4}, Bounds: []v1alpha1.LimitBound{bound("max", 100, 60, ci, "p.rego", 2)},
				Audit: []Audit{
					{cluster, "jobs beyond max would wait"},
					{cluster, "max would be 50, not 60: r (corral.scaling.limit, g.rego:2)"},
					{cluster, "min would be 9, not 2: more (corral.scaling.limit, g.rego:3)"},
				},
			},
		},
		"audit of what makes no difference": {
			[]Source{team(`{"field": "max", "atMost": 60, "reason": "r"}`), audited(guard(`{"field": "max", "atMost": 70, "reason": "r"}`))}, 0,
			Scaling{Scale: Scale{Min: 2, Max: 60, Idle: 4}, Bounds: []v1alpha1.LimitBound{bound("max", 100, 60, ci, "p.rego", 2)}},
		},
		"an audited policy that fails": {
			[]Source{audited(guard(`{"field": "max", "atMost": 50, "reason": input.zone}`))}, 0,
			Scaling{Scale: Scale{Min: 2, Max: 100, Idle: 4}, Audit: []Audit{{cluster, "InvalidAnswer: g.rego:2: corral.scaling.limit: it must have a reason"}}},
		},
		"a policy without the package abstains": {
			[]Source{namespaced("package corral.template\ndeny contains \"a\"\n")}, 0, Scaling{Scale: Scale{Min: 2, Max: 100, Idle: 4}},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 5, 1, 3, 0, 0, 0, time.UTC).UnixNano()
			got := boundBy(t, c.policies...).Scaling(t.Context(), ScalingInput{Pool: pool(), Jobs: c.jobs, Now: now})
			if diff := cmp.Diff(c.want, got, cmpopts.IgnoreFields(Scaling{}, "ID", "Digest", "CountsJobs"), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("the decision differs (-want +got):\n%s", diff)
			}
		})
	}
}

// boundBy returns pool() bound by policies.
func boundBy(t testing.TB, sources ...Source) *Bound {
	t.Helper()
	var all []*Policy
	for _, s := range sources {
		all = append(all, load(t, s))
	}
	return NewSet(all...).For(pool())
}

func TestWithoutPoliciesWhatIsDeclaredHolds(t *testing.T) {
	p := Pool{Scale: Scale{Min: 7, Max: 5, Idle: 9}}
	b := NewSet().For(p)
	want := Scaling{Scale: Scale{Min: 5, Max: 5, Idle: 5}}
	if diff := cmp.Diff(want, b.Scaling(t.Context(), ScalingInput{Pool: p})); diff != "" {
		t.Errorf("the decision differs (-want +got):\n%s", diff)
	}
	if b.Digest() != "" {
		t.Errorf("digest is %q without policies", b.Digest())
	}
}

func TestARuleIsNamedByItsMetadata(t *testing.T) {
	p := namespaced("package corral.scaling\n\n# METADATA\n# title: Nights are quiet\n# custom:\n#  code: QUIET-1\nlimit contains {\"field\": \"max\", \"atMost\": 3}\n")
	got := boundBy(t, p).Scaling(t.Context(), ScalingInput{Pool: pool()})
	want := []v1alpha1.LimitBound{
		{Field: "max", Declared: 100, Value: 3}, {Field: "idle", Declared: 4, Value: 3},
	}
	for i := range want {
		want[i].Reason = "Nights are quiet"
		want[i].Rule = v1alpha1.RuleReference{Policy: "RunnerPolicy/ci/p", Name: "corral.scaling.limit[QUIET-1]", File: "p.rego", Line: 7}
	}
	if diff := cmp.Diff(want, got.Bounds); diff != "" {
		t.Errorf("bounds differ (-want +got):\n%s", diff)
	}
}

func TestIDsTellInputsApart(t *testing.T) {
	base := func() ScalingInput {
		return ScalingInput{
			Pool:  Pool{Namespace: "ci", Name: "a", Labels: map[string]string{"a": "b"}, RunnerLabels: []string{"x"}},
			Usage: Usage{Labels: map[string]Group{"a": {Members: []Member{{Name: "m"}}}}},
		}
	}
	b := boundBy(t, team(mute))
	seen := map[string]string{b.Scaling(t.Context(), base()).ID: "nothing"}
	changes := map[string]func(*ScalingInput){
		"namespace": func(i *ScalingInput) { i.Pool.Namespace = "x" }, "name": func(i *ScalingInput) { i.Pool.Name = "x" },
		"labels": func(i *ScalingInput) { i.Pool.Labels["a"] = "x" }, "annotations": func(i *ScalingInput) { i.Pool.Annotations = map[string]string{"a": "b"} },
		"connection": func(i *ScalingInput) { i.Pool.Connection = "x" }, "scale set": func(i *ScalingInput) { i.Pool.ScaleSet = "x" },
		"group": func(i *ScalingInput) { i.Pool.RunnerGroup = "x" }, "runner labels": func(i *ScalingInput) { i.Pool.RunnerLabels = nil },
		"trust": func(i *ScalingInput) { i.Pool.Trust = "x" }, "scale": func(i *ScalingInput) { i.Pool.Scale.Idle = 1 },
		"suspended": func(i *ScalingInput) { i.Pool.StopPolicy = "Hold" }, "jobs": func(i *ScalingInput) { i.Jobs = 1 },
		"runners": func(i *ScalingInput) { i.Runners.Idle = 1 }, "busy": func(i *ScalingInput) { i.Runners.Busy = 1 },
		"granted": func(i *ScalingInput) { i.Usage.Granted = 1 }, "all": func(i *ScalingInput) { i.Usage.All.Granted = 1 },
		"members": func(i *ScalingInput) { i.Usage.Labels["a"].Members[0].Wanted = 1 },
		"now":     func(i *ScalingInput) { i.Now = 1 }, "zone": func(i *ScalingInput) { i.Zone = "x" },
	}
	for name, change := range changes {
		in := base()
		change(&in)
		id := b.Scaling(t.Context(), in).ID
		if other := seen[id]; other != "" {
			t.Errorf("the ID with another %s is that with another %s", name, other)
		}
		seen[id] = name
	}
	if id := boundBy(t, guard(mute)).Scaling(t.Context(), base()).ID; seen[id] != "" {
		t.Error("the ID doesn't depend on the policies")
	}
}

func TestHeldIsTheLowestOfEachNumber(t *testing.T) {
	scale := func(least, most, idle int32) Scale { return Scale{Min: least, Max: most, Idle: idle} }
	for name, tt := range map[string]struct{ last, declared, answered, want Scale }{
		"the last decision": {scale(1, 5, 2), scale(2, 9, 3), scale(2, 8, 3), scale(1, 5, 2)},
		"the declaration":   {scale(2, 9, 3), scale(1, 5, 2), scale(2, 8, 3), scale(1, 5, 2)},
		"another policy":    {scale(2, 9, 3), scale(2, 8, 3), scale(1, 5, 2), scale(1, 5, 2)},
		"at most max":       {scale(6, 9, 7), scale(6, 9, 7), scale(6, 4, 7), scale(4, 4, 4)},
	} {
		answer := Scaling{Scale: tt.answered}
		if got := answer.Held(tt.last, tt.declared); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}
