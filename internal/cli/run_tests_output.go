// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/corral-dev/corral/internal/report"
)

func (r *testReport) write(c *cobra.Command, f *format) error {
	if f.value == "text" {
		printDiagnostics(c.ErrOrStderr(), r.Diagnostics)
	}
	suites := func() []report.Suite {
		if len(r.Diagnostics) == 0 {
			return r.Suites
		}
		return append([]report.Suite{definitionSuite(r.Diagnostics)}, r.Suites...)
	}
	return f.report(c.OutOrStdout(), r, forms{root: r.root, findings: r.findings, suites: suites})
}

// Text implements texter.
func (r *testReport) Text() string { return texts.Execute("tests", r) }

// ranges formats sorted line numbers, and combines consecutive numbers to ranges: 3,
// 7-9.
func ranges(lines []int) (text string) {
	for i, line := range lines {
		follows := i > 0 && lines[i-1] == line-1
		isLast := i+1 == len(lines) || lines[i+1] != line+1
		if isLast {
			text += strconv.Itoa(line) + ", "
		} else if !follows {
			text += strconv.Itoa(line) + "-"
		}
	}
	return strings.TrimSuffix(text, ", ")
}

// findings returns the diagnostics, the failed tests, and a missed coverage threshold.
func (r *testReport) findings() []report.Finding {
	findings := definitionFindings(r.Diagnostics)
	for _, s := range r.Suites {
		for _, t := range s.Cases {
			if t.Result == report.Fail {
				message := strings.TrimSuffix(t.Details()+"\n"+t.Output, "\n")
				findings = append(findings, report.Finding{Level: report.Error, Rule: ruleTest, Title: "Test failed", Subject: t.Name, Message: message, Place: t.Place})
			}
		}
	}
	if r.missesThreshold() {
		findings = append(findings, report.Finding{Level: report.Error, Rule: ruleCoverage, Title: "Coverage", Message: r.err().Error()})
	}
	return findings
}
