// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/tester"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// testTimeout is the default timeout of a test.
const testTimeout = 5 * time.Second

// TestOptions configures a run of Rego tests.
type TestOptions struct {
	// Timeout of each test; 0 means 5 s.
	Timeout time.Duration
	// Run is a regular expression that a test's name (data.PACKAGE.NAME) must match; empty for all.
	Run string
	// Coverage enables the coverage report.
	Coverage bool
	// Questions are evaluated in addition to the tests, and count towards the coverage.
	Questions []Question
}

// TestReport is the result of a policy's Rego tests.
type TestReport struct {
	// Tests are sorted by package and name.
	Tests []TestResult
	// Coverage by file, sorted; empty unless it was requested.
	Coverage []FileCoverage
}

// TestResult is the result of one test.
type TestResult struct {
	// Package is for example corral.scaling_test, and Name test_closed_on_sunday.
	Package, Name string
	File          string
	Line          int
	Passed        bool
	Skipped       bool
	// Error is set if the test could not run to its end, or if its input is invalid.
	Error    string
	Duration time.Duration
	// Output of print.
	Output string
}

// FileCoverage lists the lines of a file that the tests reached.
type FileCoverage struct {
	File string
	// Covered and NotCovered are line numbers. A line without an expression is in neither.
	Covered, NotCovered []int
}

// Test runs the tests of a policy (rules test_… in *_test.rego) with the same allowed functions as its rules. It
// returns diagnostics if the tests cannot be compiled.
func Test(ctx context.Context, source Source, options TestOptions) (TestReport, []v1alpha1.Diagnostic) {
	var d diagnostics
	checkSource(&source, &d)
	modules := parseModules(&source, true, &d)
	maps.Copy(modules, parseLibrary(&source))
	data := dataOf(&source, &d)
	if len(d) > 0 {
		return TestReport{}, d.sorted()
	}
	typeInputs(modules)
	if !source.Partial {
		checkTests(modules, data, &d)
	}
	if len(d) > 0 {
		return TestReport{}, d.sorted()
	}
	t := testRun{options: options, modules: modules, inputs: inputCheck{wrong: map[string]string{}}}
	reached := cover.New()
	if options.Coverage {
		t.inputs.next = reached
		askAll(ctx, source, options.Questions, reached)
	}
	report, err := t.run(ctx, data)
	if err != nil {
		d.addErrors("", err)
	} else if options.Coverage {
		report.Coverage = coverage(&source, reached.Report(modules))
	}
	return report, d.sorted()
}

// checkTests reports references in tests to missing rules and data.
func checkTests(modules map[string]*ast.Module, data ast.Object, d *diagnostics) {
	p := &program{store: inmem.NewFromASTObject(data)}
	if p.compile(modules, false, d); len(*d) > 0 {
		return
	}
	given := p.withTargets()
	p.rules(func(file string, _ *ast.Module, rule *ast.Rule) {
		if testFile(file) {
			p.checkReferences(rule, data, given, d)
		}
	})
}

// askAll evaluates questions again to measure their coverage. It ignores errors, because the caller that asked these
// questions first has already received them.
func askAll(ctx context.Context, source Source, questions []Question, reached topdown.QueryTracer) {
	var d diagnostics
	p := build(&source, &d)
	if p == nil {
		return
	}
	p.tracer = reached
	for _, q := range questions {
		_, _ = p.evaluate(ctx, newQuestion(q))
	}
}

// testRun is a run of the tests of some modules.
type testRun struct {
	options TestOptions
	modules map[string]*ast.Module
	inputs  inputCheck
}

func (t *testRun) run(ctx context.Context, data ast.Object) (TestReport, error) {
	store := inmem.NewFromASTObject(data)
	txn := storage.NewTransactionOrDie(ctx, store)
	defer store.Abort(ctx, txn)
	runner := tester.NewRunner().SetCompiler(newCompiler().WithEnablePrintStatements(true)).SetStore(store).
		SetModules(t.modules).CapturePrintOutput(true).RaiseBuiltinErrors(true).
		SetTimeout(cmp.Or(t.options.Timeout, testTimeout)).Filter(t.options.Run).
		SetParallel(1).SetCoverageQueryTracer(&t.inputs) // sequentially, because trace events do not name their test
	results, err := runner.RunTests(ctx, txn)
	if err != nil {
		return TestReport{}, err //nolint:wrapcheck // the caller adds each of the compiler's errors to the diagnostics
	}
	var ended []*tester.Result
	for r := range results {
		ended = append(ended, r)
	}
	var report TestReport
	for _, r := range ended { // not in the loop above, because running tests still write t.inputs
		report.Tests = append(report.Tests, t.result(r))
	}
	slices.SortFunc(report.Tests, func(a, b TestResult) int {
		return cmp.Or(cmp.Compare(a.Package, b.Package), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Name, b.Name))
	})
	return report, nil
}

func (t *testRun) result(r *tester.Result) TestResult {
	result := TestResult{
		Package: strings.TrimPrefix(r.Package, "data."), Name: r.Name,
		Passed: !r.Fail && !r.Skip && r.Error == nil, Skipped: r.Skip, Duration: r.Duration, Output: string(r.Output),
	}
	wrong := ""
	if r.Location != nil {
		result.File, result.Line, wrong = r.Location.File, r.Location.Row, t.inputs.wrong[testAt(r.Location)]
	}
	switch {
	case wrong != "":
		result.Passed, result.Error = false, wrong
	case topdown.IsCancel(r.Error):
		result.Error = fmt.Sprintf("it took longer than %s", cmp.Or(t.options.Timeout, testTimeout))
	case r.Error != nil:
		result.Error = describe(r.Error)
	}
	return result
}

// coverage returns the coverage of each file of the policy except its tests, sorted by name.
func coverage(s *Source, report cover.Report) []FileCoverage {
	var all []FileCoverage
	for _, file := range slices.Sorted(maps.Keys(s.Modules)) {
		if testFile(file) {
			continue
		}
		f := FileCoverage{File: file}
		for line := range strings.Count(s.Modules[file], "\n") + 2 {
			switch lines := report.Files[file]; {
			case lines.IsCovered(line):
				f.Covered = append(f.Covered, line)
			case lines.IsNotCovered(line):
				f.NotCovered = append(f.NotCovered, line)
			}
		}
		all = append(all, f)
	}
	return all
}
