// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const testedRules = `package corral.scaling

limit contains {"field": "max", "atMost": data.parameters.max, "reason": "r"} if {
	input.pool.trust == "none"
	input.jobs > 3
}

limit contains {"field": "max", "atMost": 1, "reason": "r"} if {
	input.pool.stopPolicy == "Drain"
}
`

const testsOfRules = `package corral.scaling_test

import data.corral.scaling

test_trusted if count(scaling.limit) == 0 with input as {"pool": {"trust": "all"}}

test_untrusted if {
	print("untrusted", 1 + 1)
	{"field": "max", "atMost": 7, "reason": "r"} in scaling.limit with input as {"pool": {"trust": "none"}, "jobs": 4}
}

test_wrong if count(scaling.limit) == 1 with input as {}

test_cases[name] if {
	some name, n in {"one": 1, "two": 2}
	n == 1
}

todo_test_later if false

test_error if to_number("x") == 1

test_endless if {
	some i in numbers.range(1, 100000)
	some j in numbers.range(1, 100000)
	i + j == 0
}
`

func TestRegoTestsAreRun(t *testing.T) {
	s := namespaced(testedRules)
	s.Modules["p_test.rego"] = testsOfRules
	s.Parameters = map[string]any{"max": 7}
	report, found := Test(t.Context(), s, TestOptions{Timeout: 2 * time.Second, Coverage: true})
	if found != nil {
		t.Fatal(lines(found))
	}
	want := []TestResult{
		{Name: "test_trusted", Line: 5, Passed: true},
		{Name: "test_untrusted", Line: 7, Passed: true, Output: "untrusted 2\n"},
		{Name: "test_wrong", Line: 12},
		{Name: "test_cases", Line: 14},
		{Name: "todo_test_later", Line: 19, Skipped: true},
		{Name: "test_error", Line: 21, Error: `p_test.rego:21:15: to_number: strconv.ParseFloat: parsing "x": invalid syntax; check the value before the call`},
		{Name: "test_endless", Line: 23, Error: "it took longer than 2s"},
	}
	for i := range want {
		want[i].Package, want[i].File = "corral.scaling_test", "p_test.rego"
	}
	if diff := cmp.Diff(want, report.Tests, cmpopts.IgnoreFields(TestResult{}, "Duration")); diff != "" {
		t.Errorf("results differ (-want +got):\n%s", diff)
	}
	coverage := []FileCoverage{{File: "p.rego", Covered: []int{3, 4, 5}, NotCovered: []int{8, 9}}}
	if diff := cmp.Diff(coverage, report.Coverage); diff != "" {
		t.Errorf("coverage differs (-want +got):\n%s", diff)
	}
}

func TestSomeRegoTestsAreRun(t *testing.T) {
	s := namespaced(testedRules)
	s.Modules["p_test.rego"] = testsOfRules
	report, found := Test(t.Context(), s, TestOptions{Run: "_test.test_(trusted|wrong)"})
	if found != nil || len(report.Tests) != 2 || report.Coverage != nil {
		t.Errorf("report is %+v, diagnostics %v", report, lines(found))
	}
}

// A test with an input that no rule ever receives proves nothing, however the input is built.
func TestInputsOfTestsAreHeldAgainstTheirSchema(t *testing.T) {
	const tests = `package corral.scaling_test

import data.corral.scaling

base := {"pool": {"name": "p", "labels": {"any": "label"}}}

test_fine if count(scaling.limit) == 0 with input as object.union(base, {"jobs": 1, "usage": {"all": {"members": [{"name": "o"}]}}})

test_part if count(scaling.limit) == 0 with input.jobs as 1

test_name if count(scaling.limit) == 0 with input as object.union(base, {"jbos": 5})

test_deep if count(scaling.limit) == 0 with input as {"usage": {"all": {"members": [{"nam": "o"}]}}}

test_type if count(scaling.limit) == 0 with input.jobs as "many"

test_of_others if count(scaling.limit) == 0 with input as {"pod": {"spec": {}}}
`
	s := namespaced(testedRules)
	s.Modules["p_test.rego"], s.Parameters = tests, map[string]any{"max": 7}
	report, found := Test(t.Context(), s, TestOptions{})
	if found != nil {
		t.Fatal(lines(found))
	}
	const never = "rules never get what the test gives them: "
	want := map[string]string{
		"test_fine": "", "test_part": "",
		"test_name":      never + "input has no jbos; did you mean jobs?",
		"test_deep":      never + "input.usage.all.members[0] has no nam; did you mean name?",
		"test_type":      never + "input.jobs is of type integer, not string",
		"test_of_others": never + "input has no pod; there are " + fieldsOfScaling(),
	}
	got := map[string]string{}
	for _, r := range report.Tests {
		if got[r.Name] = r.Error; r.Passed != (r.Error == "") {
			t.Errorf("%s passed: %v, error %q", r.Name, r.Passed, r.Error)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("errors differ (-want +got):\n%s", diff)
	}
}

func TestQuestionsCountAsCoverage(t *testing.T) {
	s := namespaced(testedRules)
	s.Parameters = map[string]any{"max": 7}
	question := Question{Decision: DecisionScaling, Namespace: "ci", Input: []byte(`{"pool": {"stopPolicy": "Drain"}}`)}
	report, found := Test(t.Context(), s, TestOptions{Coverage: true, Questions: []Question{question}})
	if found != nil {
		t.Fatal(lines(found))
	}
	if diff := cmp.Diff([]FileCoverage{{File: "p.rego", Covered: []int{8, 9}, NotCovered: []int{3, 4, 5}}}, report.Coverage); diff != "" {
		t.Errorf("coverage differs (-want +got):\n%s", diff)
	}
}

func TestRegoTestsThatDoNotCompileAreTold(t *testing.T) {
	cases := map[string]struct {
		text string
		want []string
	}{
		"syntax": {"package a\ntest_x if {", []string{"p_test.rego:2:1: the { of this line is never closed"}},
		"sandbox": {"package a\ntest_x if http.send({}).status_code == 200", []string{
			"p_test.rego:2:11: undefined function http.send: policies can't call it: they have no network, clock, randomness or keys, and no function that no deadline ends; what a rule needs must be in input or data",
		}},
		"unused": {"package a\ntest_x if { y := 1 }", []string{"p_test.rego:2:13: assigned var y unused: remove it, or use _ for what isn't read"}},
		"a rule that isn't there": {"package a\ntest_x if not data.corral.scaling.lmit", []string{
			"p_test.rego:2:15: data.corral.scaling.lmit: this policy has no such rule; did you mean data.corral.scaling.limit?",
		}},
		"data that isn't there": {"package a\ntest_x if not data.teams.web", []string{"p_test.rego:2:15: data.teams.web: data has no \"teams\"; add it to the policy's data"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			s := namespaced(testedRules)
			s.Modules["p_test.rego"] = c.text
			if _, found := Test(t.Context(), s, TestOptions{}); !cmp.Equal(c.want, lines(found)) {
				t.Errorf("diagnostics differ (-want +got):\n%s", cmp.Diff(c.want, lines(found)))
			}
		})
	}
	if _, found := Test(t.Context(), namespaced(testedRules), TestOptions{Run: "("}); len(found) != 1 {
		t.Errorf("a pattern that is none gives %v", lines(found))
	}
}

func TestAnnotationsAreRead(t *testing.T) {
	const text = `# METADATA
# title: All
package corral.template

# METADATA
# title: No host network
# description: A pod on the network of its host reaches all that listens there.
# custom:
#  code: NET-1
#  family: podSecurity
deny contains "no" if input.pod.spec.hostNetwork

deny contains "plain" if input.pod.spec.hostPID
`
	got, found := Annotations(map[string]string{"p.rego": text, "q.rego": "packag"})
	want := []Annotation{
		{Package: "corral.template", File: "p.rego", Line: 3, Title: "All"},
		{
			Package: "corral.template", Rule: "deny", File: "p.rego", Line: 11, Title: "No host network",
			Description: "A pod on the network of its host reaches all that listens there.",
			Code:        "NET-1", Custom: map[string]any{"code": "NET-1", "family": "podSecurity"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("annotations differ (-want +got):\n%s", diff)
	}
	if len(found) == 0 || found[0].File != "q.rego" {
		t.Errorf("diagnostics are %v", lines(found))
	}
}

func TestEachRuleOfTheLibraryIsDocumented(t *testing.T) {
	all, found := Annotations(LibraryModules())
	if found != nil {
		t.Fatal(lines(found))
	}
	codes := map[string]bool{}
	for _, a := range all {
		if a.Rule == "" {
			continue
		}
		if a.Title == "" || a.Description == "" || a.Code == "" {
			t.Errorf("%s:%d: the rule has no title, description or code", a.File, a.Line)
		}
		codes[a.Code] = true
	}
	if len(codes) < 10 {
		t.Errorf("the library has %d codes", len(codes))
	}
}
