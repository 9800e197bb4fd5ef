// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// doubled returns steps, each of which makes a value with that of the step before twice in it.
func doubled(step string) string {
	var b strings.Builder
	for i := 1; i <= 40; i++ {
		b.WriteString(strings.NewReplacer("NEW", fmt.Sprintf("x%d", i), "OLD", fmt.Sprintf("x%d", i-1), "I", fmt.Sprint(i)).Replace(step) + "\n")
	}
	return b.String()
}

// TestValuesStayLight has rules make values that are few in memory and more than any machine can
// look at. Each must end with an error: what OPA does with such a value can't be stopped.
func TestValuesStayLight(t *testing.T) {
	cases := map[string]string{
		"arrays":             "y if {\nx0 := input.jobs\n" + doubled("NEW := [OLD, OLD]") + "count(x40) == 2\n}",
		"objects":            "y if {\nx0 := input.jobs\n" + doubled(`NEW := {"a": OLD, "b": OLD}`) + "count(x40) == 2\n}",
		"keys":               "y if {\nx0 := [1, 1]\n" + doubled("NEW := {OLD: OLD}") + "count(x40) == 2\n}",
		"unification":        "y if {\nx0 = [1, 1]\n" + doubled("NEW = [OLD, OLD]") + "count(x40) == 2\n}",
		"patterns":           "y if {\nx0 := [1, 1]\n" + doubled("[NEW, _] := [[OLD, OLD], 1]") + "count(x40) == 2\n}",
		"comprehensions":     "y if {\nx0 := [1]\n" + doubled("NEW := [OLD | some _ in numbers.range(1, 60)]") + "count(x40) == 2\n}",
		"sets":               "y if {\nx0 := {1}\n" + doubled("NEW := {[OLD, OLD, i] | some i in numbers.range(1, 20)}") + "count(x40) == 2\n}",
		"concatenation":      "y if {\nx0 := [[[1]]]\n" + doubled("NEW := array.concat(OLD, [OLD])") + "count(x40) == 2\n}",
		"union of sets":      "y if {\nx0 := {[1]}\n" + doubled("NEW := OLD | {[OLD, OLD]}") + "count(x40) == 2\n}",
		"union of objects":   "y if {\nx0 := {\"a\": {\"b\": 1}}\n" + doubled(`NEW := object.union(OLD, {"kI": OLD})`) + "count(x40) == 2\n}",
		"replaced input":     "g := input\ny if {\nx0 := 1\n" + doubled("NEW := g with input as [OLD, OLD]") + "count(x40) == 2\n}",
		"functions":          "f(x) := [x, x]\ny if {\nz := " + strings.Repeat("f(", 40) + "input.jobs" + strings.Repeat(")", 40) + "\ncount(z) == 2\n}",
		"rules":              "x0 := input.jobs\n" + doubled("NEW := [OLD, OLD]") + "y if count(x40) == 2",
		"objects by rules":   "big := [[j] | some j in numbers.range(1, 5000)]\np[i] := big if some i in numbers.range(1, 100)\nq[i] := big if some i in numbers.range(1, 100)\ny if p == q",
		"sets by rules":      "big := [[j] | some j in numbers.range(1, 5000)]\np contains [i, big] if some i in numbers.range(1, 100)\ny if count(p) == 3",
		"equal large values": "y if {\na := [[i] | some i in numbers.range(1, 60000)]\nb := [[i] | some i in numbers.range(1, 60000)]\n[a, a, a] == [b, b, b]\n}",
	}
	for name, rules := range cases {
		t.Run(name, func(t *testing.T) {
			p := load(t, namespaced("package corral.scaling\nlimit contains {\"field\": \"max\", \"atMost\": 3, \"reason\": \"r\"} if y\n"+rules+"\n"))
			ctx := WithGuard(t.Context(), func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, time.Minute) // should it not end by itself
			})
			failures := NewSet(p).For(pool()).Scaling(ctx, ScalingInput{Pool: pool()}).Failures
			if len(failures) != 1 || failures[0].Kind != EvaluationError || !strings.HasSuffix(failures[0].Message, "a value has more than 131072 parts: gather less, or count instead") {
				t.Errorf("failures are %v", failures)
			}
		})
	}
}

func TestValuesOfAFleetAreLightEnough(t *testing.T) {
	in := fleetInput()
	for i := range 5000 {
		in.Usage.All.Members = append(in.Usage.All.Members, NewMember("team", fmt.Sprintf("pool-%d", i), 3, 4))
	}
	in.Pool = pool()
	p := load(t, team(`{"field": "max", "atMost": count([m | some m in input.usage.all.members; m.wanted > 3]) - 4950, "reason": "r"}`))
	got := NewSet(p).For(in.Pool).Scaling(t.Context(), in)
	if got.Failures != nil || got.Scale.Max != 50 {
		t.Errorf("max is %d, failures %v", got.Scale.Max, got.Failures)
	}
}

// TestWeighingChangesNothing has rules say what they say without it.
func TestWeighingChangesNothing(t *testing.T) {
	for name, body := range map[string]string{
		"a comprehension that is compared":      `{x | some x in [1, 2]} == {2, 1}`,
		"two of them":                           `{x | some x in [1, 2]} == {x | some x in [2, 1]}`,
		"one that is not equal":                 `not {x | some x in [1, 2]} == {x | some x in [1]}`,
		"one that is not what a variable is":    "a := {1}\n\tnot a == {x | some x in [1, 2]}",
		"in a sum":                              `sum([x | some x in [1, 2]]) + 1 == 4`,
		"in an array":                           `[[x | some x in [1, 2]], 3] == [[1, 2], 3]`,
		"with another input":                    `{x | x := input.jobs} == {7} with input.jobs as 7`,
		"in every":                              "every x in [[1], [1]] {\n\t\tx == [y | some y in [1]]\n\t}",
		"in another comprehension":              `[z | some x in [1, 2]; z := [y | y := x]] == [[1], [2]]`,
		"as an argument":                        `count({x | some x in [1, 2]}) == 2`,
		"as a key":                              `object.get({{1, 2}: 3}, [{x | some x in [1, 2]}], 0) == 3`,
		"taken apart":                           "[a, b] := [x | some x in [1, 2]]\n\ta + b == 3",
		"a pattern":                             "some [a, {\"k\": b}] in [[1, {\"k\": 2}]]\n\ta + b == 3",
		"a union":                               `({1} | {x | some x in [2]}) == {1, 2}`,
		"a function that makes a value":         `pair(1) == [1, 1]`,
		"a function with a comprehension in it": `squares([1, 2]) == [1, 4]`,
	} {
		t.Run(name, func(t *testing.T) {
			p := load(t, namespaced("package corral.scaling\nlimit contains {\"field\": \"max\", \"atMost\": 3, \"reason\": \"r\"} if {\n\t"+body+"\n}\n"+
				"pair(x) := [x, x]\nsquares(list) := [y | some x in list; y := x * x]\ntest_all if {\n\tpair(1)\n\tsquares([1])\n}\n"))
			got := NewSet(p).For(pool()).Scaling(t.Context(), ScalingInput{Pool: pool()})
			if got.Failures != nil || got.Scale.Max != 3 {
				t.Errorf("max is %d, failures %v\n%v", got.Scale.Max, got.Failures, p.program.compiler.Modules["p.rego"].Rules[0])
			}
		})
	}
}

func TestAPatternWithAVariableOnBothSidesIsRefused(t *testing.T) {
	_, found := Load(namespaced("package corral.template\ndeny contains \"a\" if {\n\t[x, y] = [1, [x, x]]\n\ty == input.pool.name\n}\n"))
	want := "p.rego:3:2: a pattern has the same variable on both sides: take it apart in several steps"
	if len(found) == 0 || lines(found)[0] != want {
		t.Errorf("diagnostics are %v, want %s", lines(found), want)
	}
}
