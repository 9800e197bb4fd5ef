// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// TestOptions say how Rego tests run.
type TestOptions struct {
	// Timeout of each test; 0 means 5 s.
	Timeout time.Duration
	// Run is a regular expression that a test's name (data.PACKAGE.NAME) must match; empty for all.
	Run string
	// Coverage asks which lines the tests reached.
	Coverage bool
}

// TestReport is what Rego tests of one policy did, and reached.
type TestReport struct {
	// Tests by package and name.
	Tests []TestResult
	// Coverage by file, sorted; none unless it was asked for.
	Coverage []FileCoverage
}

// TestResult is one test.
type TestResult struct {
	// Package as corral.scaling_test, Name as test_closed_on_sunday.
	Package, Name string
	File          string
	Line          int
	Passed        bool
	Skipped       bool
	// Error is set when the test could not be run to its end.
	Error    string
	Duration time.Duration
	// Output of print.
	Output string
}

// FileCoverage tells which lines of a file the tests reached.
type FileCoverage struct {
	File string
	// Covered and NotCovered are lines.
	Covered, NotCovered []int
	// Percent of lines reached, 0 to 100.
	Percent float64
}

// Test runs the tests of a policy (rules test_… in *_test.rego) in the sandbox that its
// rules run in. Diagnostics say what keeps them from being compiled.
func Test(context.Context, Source, TestOptions) (TestReport, []v1alpha1.Diagnostic) {
	return TestReport{}, nil
}

// Annotation is what the metadata of a rule says.
type Annotation struct {
	// Package as corral.scaling, Rule as limit; Rule is empty for the package's own.
	Package, Rule string
	File          string
	Line          int
	Title         string
	Description   string
	// Code is custom.code.
	Code string
	// Custom is all of custom.
	Custom map[string]any
}

// Annotations returns the metadata in the modules, by file and line. Modules that don't
// parse give diagnostics.
func Annotations(map[string]string) ([]Annotation, []v1alpha1.Diagnostic) { return nil, nil }
