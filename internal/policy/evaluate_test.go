// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// load loads a policy, which must be valid.
func load(t testing.TB, source Source) *Policy {
	t.Helper()
	p, found := Load(source)
	if found != nil {
		t.Fatalf("loading %s: %v", source.Ref(), lines(found))
	}
	return p
}

// pool returns a pool in the namespace ci.
func pool() Pool {
	return Pool{Namespace: "ci", Name: "linux", Scale: Scale{Min: 2, Max: 100, Idle: 4}}
}

// limits returns a module of corral.scaling with the elements, one per line, starting at line 2.
func limits(elements ...string) string {
	var b strings.Builder
	b.WriteString("package corral.scaling\n")
	for _, e := range elements {
		fmt.Fprintf(&b, "limit contains %s\n", e)
	}
	return b.String()
}

func TestAPolicyThatCannotAnswerVoidsTheDecision(t *testing.T) {
	cases := map[string]struct {
		text string
		want Failure
	}{
		"doesn't load": {"package corral.scaling\nlimit if input.jobs", Failure{
			Kind:    NotLoaded,
			Message: `p.rego:2:1: corral.scaling.limit would be true, and say nothing: it is a set; write limit contains {"field": "max", "atMost": 10, "reason": "…"} if { … }`,
		}},
		"an error": {limits(`{"field": "max", "atMost": to_number(input.pool.name), "reason": "r"}`), Failure{
			Kind:    EvaluationError,
			Message: `p.rego:2:43: to_number: strconv.ParseFloat: parsing "linux": invalid syntax; check the value before the call`,
		}},
		"two values of one rule": {limits(`{"field": "max", "atMost": n, "reason": "r"}`) + "n := 1 if input.pool.name\nn := 2 if input.pool.namespace\n", Failure{
			Kind:    EvaluationError,
			Message: "p.rego:4:1: rule data.corral.scaling.n produced conflicting values: 1 at p.rego:3 2 at p.rego:4; let only one of the rules hold at a time",
		}},
		"division by zero": {limits(`{"field": "max", "atMost": 10 / input.jobs, "reason": "r"}`), Failure{
			Kind: EvaluationError, Message: "p.rego:2:43: div: divide by zero; check the value before the call",
		}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			broken, _ := Load(namespaced(c.text))
			good := load(t, Source{Kind: KindClusterRunnerPolicy, Name: "guard", Modules: map[string]string{"g.rego": limits(`{"field": "max", "atMost": 5, "reason": "r"}`)}})
			c.want.Policy = "RunnerPolicy/ci/p"
			got := NewSet(broken, good).For(pool()).Scaling(t.Context(), ScalingInput{Pool: pool()})
			if diff := cmp.Diff([]Failure{c.want}, got.Failures); diff != "" {
				t.Errorf("failures differ (-want +got):\n%s", diff)
			}
			if got.Scale.Max != 5 || len(got.Bounds) != 1 {
				t.Errorf("what the guard rail says is lost with the other's failure: %+v", got)
			}
		})
	}
}

func TestAnInvalidAnswerNamesItsRule(t *testing.T) {
	cases := map[string]struct{ element, want string }{
		"no object":         {`e`, "an element is an object with field, atMost, atLeast, reason, until, assignedJobs, not number"},
		"plain string":      {`s`, "an element is an object with field, atMost, atLeast, reason, until, assignedJobs, not a string"},
		"unknown key":       {`object.union({"field": "max", "atMost": 1, "reason": "r"}, {"resaon": true})`, `an element has no "resaon": did you mean reason?`},
		"key of no string":  {`{"field": "max", "atMost": 1, "reason": "r", e: 1}`, "a key of an element is a string, not number"},
		"unknown field":     {`{"field": s, "atMost": 1, "reason": "r"}`, `field is max, min or idle, not "x"`},
		"neither":           {`{"field": "max", "reason": "r"}`, "it must have atMost or atLeast, and not both"},
		"both":              {`{"field": "max", "atMost": 1, "atLeast": 1, "reason": "r"}`, "it must have atMost or atLeast, and not both"},
		"negative":          {`{"field": "max", "atMost": -1, "reason": "r"}`, "atMost is a whole number from 0 to 2147483647, not -1"},
		"fraction":          {`{"field": "max", "atMost": 1.5, "reason": "r"}`, "atMost is a whole number from 0 to 2147483647, not 1.5"},
		"hidden fraction":   {`{"field": "max", "atMost": 5000000000000000000000000.1, "reason": "r"}`, "atMost is a whole number from 0 to 2147483647, not 5000000000000000000000000.1"},
		"too many":          {`{"field": "max", "atMost": 3000000000, "reason": "r"}`, "atMost is a whole number from 0 to 2147483647, not 3000000000"},
		"no number":         {`{"field": "max", "atMost": "1", "reason": "r"}`, "atMost is a number, not string"},
		"no reason":         {`{"field": "max", "atMost": 1}`, "it must have a reason"},
		"reason of no text": {`{"field": "max", "atMost": 1, "reason": 1}`, "reason is a string, not number"},
		"jobs at min":       {`{"field": "min", "atMost": 1, "reason": "r", "assignedJobs": "Wait"}`, "assignedJobs goes with atMost of max only"},
		"jobs at floor":     {`{"field": "max", "atLeast": 1, "reason": "r", "assignedJobs": "Wait"}`, "assignedJobs goes with atMost of max only"},
		"unknown jobs":      {`{"field": "max", "atMost": 1, "reason": "r", "assignedJobs": "Drop"}`, `assignedJobs is Serve or Wait, not "Drop"`},
		"until of no time":  {`{"field": "max", "atMost": 1, "reason": "r", "until": "tomorrow"}`, `until must be a time such as 2026-05-01T06:00:00Z, not "tomorrow"`},
		"until of no whole": {`{"field": "max", "atMost": 1, "reason": "r", "until": 1.5}`, "until is a whole number of nanoseconds, not 1.5"},
		"until of no kind":  {`{"field": "max", "atMost": 1, "reason": "r", "until": true}`, "until is a string or a number, not boolean"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			// The element is built in the body, so that the check at load time cannot see it.
			text := "package corral.scaling\nlimit contains l if {\n\te := count([input.pool.name])\n\ts := substring(\"x\", 0, e)\n\tl := " + c.element + "\n\te > 0\n\ts\n}\n"
			p := load(t, namespaced(text))
			got := NewSet(p).For(pool()).Scaling(t.Context(), ScalingInput{Pool: pool()})
			want := []Failure{{Policy: "RunnerPolicy/ci/p", Kind: InvalidAnswer, Message: "p.rego:2: corral.scaling.limit: " + c.want}}
			if diff := cmp.Diff(want, got.Failures); diff != "" {
				t.Errorf("failures differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNumbersMayBeWrittenInAnyWay(t *testing.T) {
	for text, want := range map[string]int32{"3": 3, "3.0": 3, "3e0": 3, "0.5e1": 5, "-0": 0, "count([1, 2])": 2, "round(2.6)": 3, "7 / 1": 7} {
		p := load(t, namespaced(limits(`{"field": "max", "atMost": `+text+`, "reason": "r"}`)))
		got := NewSet(p).For(pool()).Scaling(t.Context(), ScalingInput{Pool: pool()})
		if got.Failures != nil || got.Scale.Max != want {
			t.Errorf("atMost %s gives max %d, want %d; failures %v", text, got.Scale.Max, want, got.Failures)
		}
	}
}

// elsewhere evaluates a policy's rules like another process. It answers with its error, if any.
type elsewhere struct {
	rules *Policy
	err   error
	asked int
}

func (e *elsewhere) Ask(ctx context.Context, _ *Policy, q Question) ([]byte, error) {
	e.asked++
	if e.err != nil {
		return nil, e.err
	}
	return e.rules.Answer(ctx, q)
}

// away returns a policy whose rules are evaluated elsewhere.
func away(t testing.TB, source Source) (*Policy, *elsewhere) {
	t.Helper()
	there := &elsewhere{rules: load(t, source)}
	return Elsewhere(source, there.rules.Facts(), there), there
}

var tooSlow = &Excess{Message: "it took more than 1s of CPU time"}

func TestAPolicyAnswersElsewhereAsItDoesHere(t *testing.T) {
	in := fleetInput()
	in.Pool.Scale = Scale{Min: 2, Max: 100, Idle: 4}
	template := TemplateInput{Pool: in.Pool, Pod: readPod(t)}
	update := UpdateInput{Pool: in.Pool, Change: Change{Strategy: "RollingUpdate", MaxSurge: 3, MaxUnavailable: 2}, Now: in.Now, Zone: "UTC"}
	for name, text := range map[string]string{
		"limits":      limits(`{"field": "max", "atMost": count(input.usage.namespace.members), "reason": "r", "assignedJobs": "Wait", "until": "2030-01-01T00:00:00Z"}`, `{"field": "idle", "atLeast": 9, "reason": sprintf("%v", [input.now])}`),
		"bad limits":  limits(`{"field": "max", "atMost": 5, "reason": "r"}`, `{"field": "max", "atMost": 1.5 * count(input.pool.name), "reason": "r"}`),
		"an error":    limits(`{"field": "max", "atMost": to_number(input.pool.name), "reason": "r"}`),
		"findings":    "package corral.template\ndeny contains {\"msg\": c.image, \"path\": \"p\", \"severity\": \"high\"} if some c in input.pod.spec.containers\nwarn contains \"w\" if input.pool.name\n",
		"bad finding": "package corral.template\ndeny contains input.pool.name\ndeny contains x if x := substring(input.pool.name, 0, 0)\n",
		"rollouts":    "package corral.update\nrollout contains {\"maxSurge\": 1, \"canary\": 1, \"strategy\": \"OnIdle\", \"reason\": \"r\"}\n",
	} {
		t.Run(name, func(t *testing.T) {
			source := namespaced(text)
			source.Namespace = in.Pool.Namespace
			remote, _ := away(t, source)
			here, there := NewSet(load(t, source)).For(in.Pool), NewSet(remote).For(in.Pool)
			for decision, answers := range map[string][2]any{
				"scaling":  {here.Scaling(t.Context(), in), there.Scaling(t.Context(), in)},
				"template": {here.Template(t.Context(), template), there.Template(t.Context(), template)},
				"update":   {here.Update(t.Context(), update), there.Update(t.Context(), update)},
			} {
				if diff := cmp.Diff(answers[0], answers[1]); diff != "" {
					t.Errorf("%s differs (-here +there):\n%s", decision, diff)
				}
			}
		})
	}
}

func TestAPolicyThatTimesOutIsQuarantinedForWhoAsks(t *testing.T) {
	source := Source{Kind: KindClusterRunnerPolicy, Name: "slow", Modules: map[string]string{"p.rego": limits(`{"field": "max", "atMost": 5, "reason": "r"}`)}}
	slow, there := away(t, source)
	ask := func(namespace string) (kinds []FailureKind) {
		p := pool()
		p.Namespace = namespace
		for _, f := range NewSet(slow).For(p).Scaling(t.Context(), ScalingInput{Pool: p}).Failures {
			kinds = append(kinds, f.Kind)
		}
		return kinds
	}
	var got []FailureKind
	there.err = tooSlow
	for range quarantineAfter + 1 {
		got = append(got, ask("greedy")...)
	}
	if diff := cmp.Diff([]FailureKind{TimedOut, TimedOut, TimedOut, Quarantined}, got); diff != "" {
		t.Errorf("failures differ (-want +got):\n%s", diff)
	}
	there.err = nil
	if got := ask("quiet"); got != nil {
		t.Errorf("it is not asked for pools of another namespace: %v", got)
	}
	if diff := cmp.Diff([]string{"greedy"}, slow.Quarantined()); diff != "" {
		t.Error(diff)
	}
	if again, _ := away(t, source); len(again.Quarantined()) > 0 {
		t.Error("the quarantine outlives the policy")
	}
}

func TestWhatIsNotThePolicysFaultIsNotCharged(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		err  error
		want FailureKind
	}{
		"the caller's end":          {ended, nil, TimedOut},
		"a child that can't be had": {t.Context(), errors.New("no more processes"), EvaluationError},
	} {
		p, there := away(t, namespaced(limits(`{"field": "max", "atMost": 5, "reason": "r"}`)))
		there.err = c.err
		for range quarantineAfter + 1 {
			got := NewSet(p).For(pool()).Scaling(c.ctx, ScalingInput{Pool: pool()})
			if len(got.Failures) != 1 || got.Failures[0].Kind != c.want {
				t.Fatalf("%s: failures are %v, want one %s", name, got.Failures, c.want)
			}
		}
	}
}

// A denial counts even if the same policy returns too many elements or an invalid one.
func TestADenialIsNotLostInWhatElseIsSaid(t *testing.T) {
	for name, text := range map[string]string{
		"too many warnings":      "warn contains sprintf(\"%d\", [i]) if some i in numbers.range(1, 3000)\ndeny contains \"no\"\n",
		"too many denials":       "deny contains sprintf(\"%d\", [i]) if some i in numbers.range(1, 3000)\n",
		"an empty one first":     "deny contains x if x := substring(input.pool.name, 0, 0)\ndeny contains \"no\"\n",
		"bytes that no text has": "deny contains base64.decode(\"" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0x80}, 2*maxText)) + "\")\n",
		"an empty message":       "deny contains \"no\"\ndeny contains x if x := substring(input.pool.name, 0, 0)\n",
	} {
		remote, _ := away(t, namespaced("package corral.template\n"+text))
		for where, p := range map[string]*Policy{"here": load(t, namespaced("package corral.template\n"+text)), "elsewhere": remote} {
			got := NewSet(p).For(pool()).Template(t.Context(), TemplateInput{Pool: pool(), Pod: json.RawMessage(`{}`)})
			if len(got.Denials) == 0 || len(p.Quarantined()) > 0 || !utf8.ValidString(got.Denials[0].Message) {
				t.Errorf("%s, %s: %d denials, failures %v", name, where, len(got.Denials), got.Failures)
			}
		}
	}
}

func TestAPolicyWhoseReachCannotBeReadBindsAll(t *testing.T) {
	near := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}
	for name, source := range map[string]Source{
		"namespaces": {Kind: KindClusterRunnerPolicy, Namespaces: []string{"[a"}},
		"selector":   {Kind: KindClusterRunnerPolicy, Selector: near},
	} {
		if p, _ := Load(source); !p.Binds(pool()) {
			t.Errorf("a policy whose %s can't be read binds no pool", name)
		}
	}
}

func TestAPodThatCannotBeReadIsNotAllowed(t *testing.T) {
	p := load(t, namespaced("package corral.template\ndeny contains \"a\" if input.pod.spec.hostNetwork\n"))
	b := NewSet(p).For(pool())
	for _, pod := range []string{"", "{", "[]"} {
		got := b.Template(t.Context(), TemplateInput{Pool: pool(), Pod: json.RawMessage(pod)})
		if len(got.Failures) != 1 || got.Failures[0].Kind != EvaluationError {
			t.Errorf("pod %.20q: failures are %v", pod, got.Failures)
		}
	}
}

func TestPoliciesAreAskedAboutWhatTheyBind(t *testing.T) {
	byLabel := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	cases := map[string]struct {
		source Source
		pool   Pool
		want   bool
	}{
		"its namespace":       {Source{Kind: KindRunnerPolicy, Namespace: "ci"}, Pool{Namespace: "ci"}, true},
		"another namespace":   {Source{Kind: KindRunnerPolicy, Namespace: "ci"}, Pool{Namespace: "cd"}, false},
		"cluster":             {Source{Kind: KindClusterRunnerPolicy}, Pool{Namespace: "cd"}, true},
		"cluster, by name":    {Source{Kind: KindClusterRunnerPolicy, Namespaces: []string{"a", "cd"}}, Pool{Namespace: "cd"}, true},
		"cluster, by pattern": {Source{Kind: KindClusterRunnerPolicy, Namespaces: []string{"team-*"}}, Pool{Namespace: "team-a"}, true},
		"cluster, others":     {Source{Kind: KindClusterRunnerPolicy, Namespaces: []string{"team-*"}}, Pool{Namespace: "a-team-a"}, false},
		"label":               {Source{Kind: KindClusterRunnerPolicy, Selector: byLabel}, Pool{Labels: map[string]string{"a": "b"}}, true},
		"no label":            {Source{Kind: KindClusterRunnerPolicy, Selector: byLabel}, Pool{Labels: map[string]string{"a": "c"}}, false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := load(t, c.source)
			if got := len(NewSet(p).For(c.pool).Policies()) == 1; got != c.want {
				t.Errorf("the policy is asked: %v, want %v", got, c.want)
			}
		})
	}
}
