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
	input.pool.suspended
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
	report, found := Test(t.Context(), s, TestOptions{Timeout: 200 * time.Millisecond, Coverage: true})
	if found != nil {
		t.Fatal(lines(found))
	}
	want := []TestResult{
		{Name: "test_trusted", Line: 5, Passed: true},
		{Name: "test_untrusted", Line: 7, Passed: true, Output: "untrusted 2\n"},
		{Name: "test_wrong", Line: 12},
		{Name: "test_cases", Line: 14, Cases: []string{"two"}},
		{Name: "todo_test_later", Line: 19, Skipped: true},
		{Name: "test_error", Line: 21, Error: `p_test.rego:21:15: to_number: strconv.ParseFloat: parsing "x": invalid syntax; check the value before the call`},
		{Name: "test_endless", Line: 23, Error: "it took longer than 200ms"},
	}
	for i := range want {
		want[i].Package, want[i].File = "corral.scaling_test", "p_test.rego"
	}
	if diff := cmp.Diff(want, report.Tests, cmpopts.IgnoreFields(TestResult{}, "Duration")); diff != "" {
		t.Errorf("results differ (-want +got):\n%s", diff)
	}
	coverage := []FileCoverage{{File: "p.rego", Covered: []int{3, 4, 5}, NotCovered: []int{8, 9}, Percent: 60}}
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

func TestRegoTestsThatDoNotCompileAreTold(t *testing.T) {
	cases := map[string]struct {
		text string
		want []string
	}{
		"syntax": {"package a\ntest_x if {", []string{`p_test.rego:2:11: unexpected eof token at "test_x if {"; rules are written in Rego v1`}},
		"sandbox": {"package a\ntest_x if http.send({}).status_code == 200", []string{
			"p_test.rego:2:11: undefined function http.send: policies can't call it: they have no network, clock, randomness or keys, and no function that no deadline ends; what a rule needs must be in input or data",
		}},
		"unused": {"package a\ntest_x if { y := 1 }", []string{"p_test.rego:2:13: assigned var y unused: remove it, or use _ for what isn't read"}},
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
	modules, err := LibraryModules()
	if err != nil {
		t.Fatal(err)
	}
	all, found := Annotations(modules)
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
