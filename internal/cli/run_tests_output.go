// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/report"
	"github.com/corral-dev/corral/internal/wording"
)

const noTests = "no tests found: name Rego tests NAME_test.rego, with rules test_…, and scenarios NAME.scenario.yaml"

func (r *testReport) write(c *cobra.Command, f *format) error {
	switch f.value {
	case "json":
		if r.Diagnostics == nil {
			r.Diagnostics = []v1alpha1.Diagnostic{}
		}
		if r.Suites == nil {
			r.Suites = []testSuite{}
		}
		return f.write(c.OutOrStdout(), r)
	case "github":
		return report.GitHub(c.OutOrStdout(), fromCheckout(r.root, r.findings()))
	case "junit":
		return report.JUnit(c.OutOrStdout(), r.suites())
	}
	r.writeText(c.OutOrStdout(), c.ErrOrStderr())
	return nil
}

// writeText tells of tests as go test does.
func (r *testReport) writeText(stdout, stderr io.Writer) {
	printDiagnostics(stderr, r.Diagnostics)
	if len(r.Suites) == 0 && len(r.Diagnostics) == 0 {
		fmt.Fprintln(stdout, noTests)
	}
	for _, s := range r.Suites {
		for _, t := range s.Tests {
			if t.Result != passed || r.options.verbose {
				t.write(stdout)
			}
		}
		fmt.Fprintf(stdout, "%-4s  %s  %s  %.3fs\n", s.verdict(), s.Name, wording.Count(len(s.Tests), "test"), s.seconds())
	}
	if r.Coverage != nil {
		r.Coverage.write(stdout)
	}
}

func (t testCase) write(w io.Writer) {
	fmt.Fprintf(w, "--- %s: %s (%.2fs)\n", strings.ToUpper(t.Result), t.Name, t.Seconds)
	if t.Result == failed {
		fmt.Fprintf(w, "    %s\n", report.Place{File: t.File, Line: t.Line})
	}
	for line := range strings.Lines(t.details()) {
		fmt.Fprintf(w, "    %s\n", strings.TrimSuffix(line, "\n"))
	}
}

// details are what is wrong, the rules that made it, and what was printed.
func (t testCase) details() string {
	var b strings.Builder
	if t.Failure != "" {
		b.WriteString(t.Failure + "\n")
	}
	for _, line := range t.Because {
		b.WriteString("  " + line + "\n")
	}
	if t.Output != "" {
		b.WriteString(strings.TrimSuffix(t.Output, "\n") + "\n")
	}
	return b.String()
}

func (s testSuite) verdict() string {
	if slices.ContainsFunc(s.Tests, func(t testCase) bool { return t.Result == failed }) {
		return "FAIL"
	}
	return "ok"
}

func (s testSuite) seconds() float64 {
	total := 0.0
	for _, t := range s.Tests {
		total += t.Seconds
	}
	return total
}

func (c *coverage) write(w io.Writer) {
	for _, f := range c.Files {
		fmt.Fprintf(w, "coverage: %5.1f%%  %s", f.Percent, f.File)
		if len(f.NotCovered) > 0 {
			fmt.Fprintf(w, "  not reached: %s", ranges(f.NotCovered))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "coverage: %5.1f%%  in total\n", c.Percent)
}

// ranges writes sorted lines, those in a row together: 3, 7-9.
func ranges(lines []int) string {
	var parts []string
	for i := 0; i < len(lines); {
		end := i
		for end+1 < len(lines) && lines[end+1] == lines[end]+1 {
			end++
		}
		part := strconv.Itoa(lines[i])
		if end > i {
			part += "-" + strconv.Itoa(lines[end])
		}
		parts = append(parts, part)
		i = end + 1
	}
	return strings.Join(parts, ", ")
}

// findings are the tests that failed.
func (r *testReport) findings() []report.Finding {
	findings := diagnosed(r.Diagnostics)
	for _, s := range r.Suites {
		for _, t := range s.Tests {
			if t.Result == failed {
				findings = append(findings, report.Finding{
					Level: report.Error, Rule: ruleTest, Title: "Test failed", Subject: t.Name, Message: strings.TrimSuffix(t.details(), "\n"),
					Place: report.Place{File: t.File, Line: t.Line},
				})
			}
		}
	}
	if r.missesThreshold() {
		findings = append(findings, report.Finding{Level: report.Error, Rule: ruleCoverage, Title: "Coverage", Message: r.err().Error()})
	}
	return findings
}

// suites tells the report as JUnit has it.
func (r *testReport) suites() []report.Suite {
	var suites []report.Suite
	if len(r.Diagnostics) > 0 {
		suites = append(suites, definitionSuite(r.Diagnostics))
	}
	for _, s := range r.Suites {
		suite := report.Suite{Name: s.Name}
		for _, t := range s.Tests {
			c := report.Case{
				Name: t.Name, Place: report.Place{File: t.File, Line: t.Line}, Skipped: t.Result == skipped,
				Duration: time.Duration(t.Seconds * float64(time.Second)), Output: t.Output,
			}
			if t.Result == failed {
				c.Failure, c.Output = strings.TrimSuffix(t.details(), "\n"), ""
			}
			suite.Cases = append(suite.Cases, c)
		}
		suites = append(suites, suite)
	}
	return suites
}
