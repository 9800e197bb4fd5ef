// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/internal/report"
	"github.com/corral-dev/corral/test/golden"
)

var findings = []report.Finding{
	{Level: report.Note, Rule: "corral.policy.effect", Title: "Effect of policies", Subject: "pool big", Message: "max 500 → 60"},
	{
		Level: report.Error, Rule: "corral.template.deny", Title: "Denied: by policy, 100%", Subject: "pool ci/big",
		Message: "denied: 100% root\r\non the node, see a:b", Help: "remove privileged",
		Place: report.Place{File: "pools, old/big #1.cue", Line: 3, Column: 9}, Path: "pools.big.spec.template.spec.containers[0]",
		Source: report.Place{File: "policies/pods.rego", Line: 12}, By: "corral.template.deny, policies/pods.rego:12",
	},
	{Level: report.Warning, Rule: "corral.template.warn", Message: "<slow> & large", Place: report.Place{File: "/elsewhere/x.cue", Line: 1}},
	{Level: report.Error, Rule: "corral.template.deny", Subject: "pool other", Message: "denied again", Place: report.Place{File: "pools.cue"}},
}

var suites = []report.Suite{
	{Name: "RunnerPolicy/repository", Cases: []report.Case{
		{Name: "data.a_test.test_one", Place: report.Place{File: "a_test.rego", Line: 4}, Result: report.Pass, Seconds: 0.0015, Output: "printed \x1b[1m <b>"},
		{Name: "data.a_test.test_two", Result: report.Fail, Seconds: 1, Failure: "- max: 60\n+ max: 500 ]]> \"quoted\""},
	}},
	{Name: "empty"},
	{Name: "linux.scenario.yaml", Cases: []report.Case{{Name: "later", Result: report.Skip}}},
}

func writeJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

func TestFormats(t *testing.T) {
	for name, write := range map[string]func(io.Writer) error{
		"findings.github": func(w io.Writer) error { return report.GitHub(w, findings) },
		"findings.sarif":  func(w io.Writer) error { return writeJSON(w, report.SARIF("v1.2.3", findings)) },
		"none.sarif":      func(w io.Writer) error { return writeJSON(w, report.SARIF("v1.2.3", nil)) },
		"suites.xml":      func(w io.Writer) error { return report.JUnit(w, suites) },
		"none.xml":        func(w io.Writer) error { return report.JUnit(w, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			if err := write(&got); err != nil {
				t.Fatal(err)
			}
			golden.Compare(t, filepath.Join("testdata", name), got.String())
		})
	}
}

// GitHub's runner parses the output, so the test applies the rules of its command format.
func TestGitHubCommandsAreOneLineEachWhateverTheTextHolds(t *testing.T) {
	var b bytes.Buffer
	nasty := report.Finding{Level: report.Error, Message: "a\n::error::b\r\n::set-output name=x::y", Title: "x,line=9::evil\n", Place: report.Place{File: "a,b:c%0A.cue", Line: 1}}
	if err := report.GitHub(&b, []report.Finding{nasty, nasty}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	const want = "::error file=a%2Cb%3Ac%250A.cue,line=1,title=x%2Cline=9%3A%3Aevil%0A::a%0A::error::b%0D%0A::set-output name=x::y"
	if diff := cmp.Diff([]string{want, want}, lines); diff != "" {
		t.Error(diff)
	}
}

func TestSARIFKeepsTheWorstOfTooMany(t *testing.T) {
	many := make([]report.Finding, 0, 5101)
	for range 5100 {
		many = append(many, report.Finding{Level: report.Note, Rule: "r", Message: "m"})
	}
	many = append(many, report.Finding{Level: report.Error, Rule: "bad", Message: "the one"})
	var b bytes.Buffer
	if err := writeJSON(&b, report.SARIF("", many)); err != nil {
		t.Fatal(err)
	}
	var log struct {
		Runs []struct {
			Results []struct {
				RuleID  string
				Message struct{ Text string }
			}
		}
	}
	if err := json.Unmarshal(b.Bytes(), &log); err != nil {
		t.Fatal(err)
	}
	results := log.Runs[0].Results
	if len(results) != 5000 || results[0].RuleID != "bad" || results[4999].Message.Text != "and 102 more findings" {
		t.Errorf("got %d results, the first %v, the last %v", len(results), results[0], results[len(results)-1])
	}
}

func TestJUnitIsWellFormedWhateverTestsPrint(t *testing.T) {
	var b bytes.Buffer
	nasty := "\x00\x1b]]></system-out>\xff&"
	err := report.JUnit(&b, []report.Suite{{Name: nasty, Cases: []report.Case{{Name: nasty, Output: nasty, Failure: nasty}}}})
	if err != nil {
		t.Fatal(err)
	}
	var back struct {
		Suites []struct {
			Cases []struct {
				Output string `xml:"system-out"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(b.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	if got := back.Suites[0].Cases[0].Output; got != "\uFFFD\uFFFD]]></system-out>\uFFFD&" {
		t.Errorf("got %q", got)
	}
}
