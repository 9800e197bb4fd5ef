// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/report"
	"github.com/corral-dev/corral/internal/wording"
)

// testReport is the output of test.
type testReport struct {
	// Diagnostics of the definitions and policies. If there are any before the tests start, no test runs.
	Diagnostics []v1alpha1.Diagnostic `json:"diagnostics"`
	Suites      []report.Suite        `json:"suites"`
	// Coverage of the rules by tests and scenarios; absent unless a flag requests it.
	Coverage *coverage `json:"coverage,omitempty"`

	testOptions
	// root is the top folder of the definitions.
	root string
}

// Kinds of suites.
const (
	kindRego     = "rego"
	kindScenario = "scenario"
)

// coverage contains the lines of rules that the tests did not reach, by file.
type coverage struct {
	Percent float64        `json:"percent"`
	Files   []fileCoverage `json:"files"`

	reached, missed int
}

type fileCoverage struct {
	File       string  `json:"file"`
	Percent    float64 `json:"percent"`
	NotCovered []int   `json:"notCovered,omitempty"`
}

// testOptions are the flags of test.
type testOptions struct {
	run       string
	Verbose   bool `json:"-"`
	coverage  bool
	threshold float64
}

func newTest() *cobra.Command {
	c := &cobra.Command{
		Use:   "test [DIR]",
		Short: "Run tests of policies: Rego tests and scenarios",
		Long: `Run the tests of the policies in DIR (default: the current folder) and of the policies of
--policy: the rules test_… in *_test.rego files, and the cases in *.scenario.yaml files. A case
describes a pool in a situation and the decisions that policies should make. Policies are
evaluated by the same engine as in the cluster, without access to network, clock and random
numbers.

For a failed test, the command prints the expected result, the actual result and the rules that
led to it, and exits with code 1. The exit code is also 1 if a file cannot be read or compiled, if
--run matches no test, or if tests reach less than --threshold percent of the lines of rules.`,
		Example: "  corral test\n  corral test --run closed -v\n  corral test policies --coverage --threshold 90\n  corral test --policy ../guard -o junit > junit.xml",
	}
	in := bindInputs(c, "text", "json", "github", "junit")
	in.allowEmpty, in.policies.record = true, true
	var t testOptions
	c.Flags().StringVar(&t.run, "run", t.run, "run only tests whose name matches this regular expression: data.PACKAGE.NAME, or FILE/CASE of a scenario")
	c.Flags().BoolVarP(&t.Verbose, "verbose", "v", t.Verbose, "also print the tests that passed")
	c.Flags().BoolVar(&t.coverage, "coverage", t.coverage, "print which lines of rules the tests and scenarios reach")
	c.Flags().Float64Var(&t.threshold, "threshold", 0, "minimum coverage in percent, 0 to 100")
	c.RunE = func(c *cobra.Command, args []string) error {
		if t.threshold < 0 || t.threshold > 100 {
			return fmt.Errorf("--threshold must be from 0 to 100, found %g", t.threshold)
		}
		run, err := regexp.Compile(t.run)
		if err != nil {
			return fmt.Errorf("--run must be a regular expression: %w", err)
		}
		t.coverage = t.coverage || t.threshold > 0
		w, err := in.open(c.Context(), args)
		if err != nil {
			return err
		}
		r := &testReport{Diagnostics: append([]v1alpha1.Diagnostic{}, w.Diagnostics...), Suites: []report.Suite{}, testOptions: t, root: w.root}
		if len(r.Diagnostics) == 0 {
			err = r.runAll(c.Context(), w, run)
		}
		return cmp.Or(err, r.write(c, in.output), r.err())
	}
	return c
}

// runAll runs all tests. Scenarios run first, so that the coverage includes the lines of rules that they
// reach.
func (r *testReport) runAll(ctx context.Context, w *workspace, only *regexp.Regexp) error {
	scenarios, err := r.runScenarios(ctx, w, only)
	if err != nil {
		return err
	}
	if r.coverage {
		r.Coverage = &coverage{Files: []fileCoverage{}}
	}
	for _, p := range w.policies {
		if p.hasTests() || r.coverage && !p.testsOnly {
			if err := r.runRego(ctx, p, w.options); err != nil {
				return err
			}
		}
	}
	r.Suites = append(r.Suites, scenarios...)
	return nil
}

// runRego runs the Rego tests of one policy, and determines the coverage of its rules.
func (r *testReport) runRego(ctx context.Context, p *declaredPolicy, o policyOptions) error {
	result, diagnostics, err := o.rules(ctx).Test(ctx, p.source, policy.TestOptions{
		Timeout: o.timeout, Run: r.run, Coverage: r.coverage, Questions: p.recorder.questions,
	})
	if err != nil {
		return fmt.Errorf("testing %s: %w", p.source.Ref(), err)
	}
	r.Diagnostics = append(r.Diagnostics, p.translate(diagnostics)...)
	suite := report.Suite{Name: p.source.Ref(), Kind: kindRego}
	for _, t := range result.Tests {
		c := report.Case{Name: "data." + t.Package + "." + t.Name, Place: p.locate(t.File, t.Line), Result: report.Pass, Output: t.Output, Seconds: t.Duration.Seconds()}
		switch {
		case t.Skipped:
			c.Result = report.Skip
		case !t.Passed:
			c.Result, c.Failure = report.Fail, cmp.Or(t.Error, "the rule is not true")
		}
		suite.Cases = append(suite.Cases, c)
	}
	if len(suite.Cases) > 0 {
		r.Suites = append(r.Suites, suite)
	}
	for _, f := range result.Coverage {
		file := p.locate(f.File, 1).File
		if file != "" && !strings.HasSuffix(f.File, testSuffix) {
			r.Coverage.add(file, len(f.Covered), f.NotCovered)
		}
	}
	return nil
}

// hasTests reports whether the policy has Rego tests.
func (p *declaredPolicy) hasTests() bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(p.source.Modules)), func(module string) bool { return strings.HasSuffix(module, testSuffix) })
}

// add adds the coverage of a file.
func (c *coverage) add(file string, reached int, missed []int) {
	c.Files = append(c.Files, fileCoverage{file, percent(reached, len(missed)), missed})
	slices.SortStableFunc(c.Files, func(a, b fileCoverage) int { return cmp.Compare(a.File, b.File) })
	c.reached += reached
	c.missed += len(missed)
	c.Percent = percent(c.reached, c.missed)
}

// percent returns the percentage of reached lines, rounded to one decimal place.
func percent(reached, missed int) float64 {
	return math.Round(1000*float64(reached)/float64(max(1, reached+missed))) / 10
}

// err returns the error that determines the exit code.
func (r *testReport) err() error {
	all := report.Suite{}
	for _, s := range r.Suites {
		all.Cases = append(all.Cases, s.Cases...)
	}
	switch failed := all.Count(report.Fail); {
	case len(r.Diagnostics) > 0:
		return problems(r.Diagnostics)
	case failed > 0:
		return fmt.Errorf("%d of %s failed", failed, wording.Count(len(all.Cases), "test"))
	case len(all.Cases) == 0 && r.run != "":
		return fmt.Errorf("no test matches --run %s", r.run)
	case r.missesThreshold():
		return fmt.Errorf("coverage is %.1f %%, below the threshold of %g %%", r.Coverage.Percent, r.threshold)
	}
	return nil
}

func (r *testReport) missesThreshold() bool {
	return r.Coverage != nil && r.Coverage.Percent < r.threshold
}
