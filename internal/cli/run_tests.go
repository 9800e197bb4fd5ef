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
	"github.com/corral-dev/corral/internal/wording"
)

// testReport is the output of test.
type testReport struct {
	// Diagnostics say what keeps tests from being run.
	Diagnostics []v1alpha1.Diagnostic `json:"diagnostics"`
	Suites      []testSuite           `json:"suites"`
	// Coverage of Rego by tests and scenarios; absent unless it was asked for.
	Coverage *coverage `json:"coverage,omitempty"`

	options testOptions
	// root is the top folder of the definitions.
	root string
}

// testSuite is the Rego tests of a policy, or the cases of a scenario file.
type testSuite struct {
	Name  string     `json:"name"`
	Kind  string     `json:"kind"`
	Tests []testCase `json:"tests"`
}

// testCase is one test.
type testCase struct {
	Name   string `json:"name"`
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Result string `json:"result"`
	// Failure says what is wrong: a diff for a scenario.
	Failure string `json:"failure,omitempty"`
	// Because names the rules that made the answer of a scenario that failed.
	Because []string `json:"because,omitempty"`
	Output  string   `json:"output,omitempty"`
	Seconds float64  `json:"seconds"`
}

// Kinds of suites.
const (
	kindRego     = "rego"
	kindScenario = "scenario"
)

// Results of a test.
const (
	passed  = "pass"
	failed  = "fail"
	skipped = "skip"
)

// coverage tells which lines of rules the tests reached.
type coverage struct {
	Percent float64        `json:"percent"`
	Files   []fileCoverage `json:"files"`
}

type fileCoverage struct {
	File       string  `json:"file"`
	Percent    float64 `json:"percent"`
	NotCovered []int   `json:"notCovered,omitempty"`

	reached int
}

// testOptions are the flags of test.
type testOptions struct {
	run       string
	verbose   bool
	coverage  bool
	threshold float64
}

func newTest() *cobra.Command {
	c := &cobra.Command{
		Use:   "test [DIR]",
		Short: "Run tests of policies: Rego tests and scenarios",
		Long: `Run the tests of the policies in DIR (default: the current folder) and of those given with
--policy: the rules test_… of *_test.rego files, and the cases of *.scenario.yaml files,
which say what policies are to decide about a pool in a situation. Policies decide as they
do in the cluster: the same engine, without network, clock and random.

A failed test is told with what was expected, what came, and the rules that made it; the
exit code is 1. The same holds when a file can't be read or compiled, when --run matches no
test, and when less than --threshold percent of the lines of rules is reached by tests.`,
		Example: "  corral test\n  corral test --run closed -v\n  corral test policies --coverage --threshold 90\n  corral test --policy ../guard -o junit > junit.xml",
	}
	d := bindDefinitions(c)
	d.allowEmpty = true
	o := bindPolicyOptions(c)
	var t testOptions
	flags := c.Flags()
	flags.StringVar(&t.run, "run", "", "run only tests whose name matches this regular expression: data.PACKAGE.NAME, or FILE/CASE of a scenario")
	flags.BoolVarP(&t.verbose, "verbose", "v", false, "print the tests that passed, too")
	flags.BoolVar(&t.coverage, "coverage", false, "print which lines of rules the tests and scenarios reach")
	flags.Float64Var(&t.threshold, "threshold", 0, "least coverage in percent, 0 to 100")
	f := bindFormat(c, "text", "json", "github", "junit")
	c.RunE = func(c *cobra.Command, args []string) error {
		run, err := t.check()
		if err != nil {
			return err
		}
		o.record = t.coverage
		w, err := open(c.Context(), d, o, args)
		if err != nil {
			return err
		}
		r := &testReport{Diagnostics: w.Diagnostics, options: t, root: w.root}
		if len(r.Diagnostics) == 0 {
			if err := r.run(c.Context(), w, run); err != nil {
				return err
			}
		}
		if err := r.write(c, f); err != nil {
			return err
		}
		return r.err()
	}
	return c
}

// check refuses options that can't be meant, and completes them.
func (t *testOptions) check() (*regexp.Regexp, error) {
	if t.threshold < 0 || t.threshold > 100 {
		return nil, fmt.Errorf("--threshold must be from 0 to 100, found %g", t.threshold)
	}
	t.coverage = t.coverage || t.threshold > 0
	run, err := regexp.Compile(t.run)
	if err != nil {
		return nil, fmt.Errorf("--run must be a regular expression: %w", err)
	}
	return run, nil
}

// run runs all tests; scenarios before others, so that it is known what they ask.
func (r *testReport) run(ctx context.Context, w *workspace, only *regexp.Regexp) error {
	scenarios, err := r.runScenarios(ctx, w, only)
	if err != nil {
		return err
	}
	lines := &coverage{Files: []fileCoverage{}}
	for _, p := range w.policies {
		if p.hasTests() || r.options.coverage && !p.testsOnly {
			if err := r.runRego(ctx, p, w.options, lines); err != nil {
				return err
			}
		}
	}
	r.Suites = append(r.Suites, scenarios...)
	if r.options.coverage {
		lines.complete()
		r.Coverage = lines
	}
	return nil
}

// runRego runs the Rego tests of one policy.
func (r *testReport) runRego(ctx context.Context, p *declaredPolicy, o policyOptions, lines *coverage) error {
	rules, err := o.rules(ctx)
	if err != nil {
		return err
	}
	result, diagnostics, err := rules.Test(ctx, p.source, policy.TestOptions{
		Timeout: o.timeout, Run: r.options.run, Coverage: r.options.coverage, Questions: p.asked.questions,
	})
	if err != nil {
		return fmt.Errorf("testing %s: %w", p.source.Ref(), err)
	}
	r.Diagnostics = append(r.Diagnostics, p.translate(diagnostics)...)
	suite := testSuite{Name: p.source.Ref(), Kind: kindRego}
	for _, t := range result.Tests {
		at := p.place(t.File, t.Line)
		c := testCase{
			Name: "data." + t.Package + "." + t.Name, File: at.File, Line: at.Line, Result: passed,
			Output: t.Output, Seconds: t.Duration.Seconds(),
		}
		switch {
		case t.Skipped:
			c.Result = skipped
		case !t.Passed:
			c.Result, c.Failure = failed, cmp.Or(t.Error, "the rule is not true")
		}
		suite.Tests = append(suite.Tests, c)
	}
	if len(suite.Tests) > 0 {
		r.Suites = append(r.Suites, suite)
	}
	for _, f := range result.Coverage {
		if at := p.place(f.File, 1); at.File != "" && !strings.HasSuffix(f.File, testSuffix) {
			lines.add(at.File, f)
		}
	}
	return nil
}

// hasTests says whether there are Rego tests of the policy.
func (p *declaredPolicy) hasTests() bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(p.source.Modules)), func(module string) bool { return strings.HasSuffix(module, testSuffix) })
}

// add adds the lines of a file. Modules that are written in one manifest are counted together.
func (c *coverage) add(file string, f policy.FileCoverage) {
	i := slices.IndexFunc(c.Files, func(known fileCoverage) bool { return known.File == file })
	if i < 0 {
		i = len(c.Files)
		c.Files = append(c.Files, fileCoverage{File: file})
	}
	c.Files[i].reached += len(f.Covered)
	c.Files[i].NotCovered = append(c.Files[i].NotCovered, f.NotCovered...)
}

// complete works out the percentages.
func (c *coverage) complete() {
	slices.SortFunc(c.Files, func(a, b fileCoverage) int { return cmp.Compare(a.File, b.File) })
	reached, missed := 0, 0
	for i := range c.Files {
		f := &c.Files[i]
		f.Percent = percent(f.reached, len(f.NotCovered))
		reached, missed = reached+f.reached, missed+len(f.NotCovered)
	}
	c.Percent = percent(reached, missed)
}

// percent of lines that were reached, with one digit.
func percent(reached, missed int) float64 {
	if reached+missed == 0 {
		return 0
	}
	return math.Round(1000*float64(reached)/float64(reached+missed)) / 10
}

// counts of tests by their result.
func (r *testReport) counts() map[string]int {
	counts := map[string]int{}
	for _, s := range r.Suites {
		for _, t := range s.Tests {
			counts[t.Result]++
		}
	}
	return counts
}

// err is what test ends with.
func (r *testReport) err() error {
	if len(r.Diagnostics) > 0 {
		return problems(r.Diagnostics)
	}
	counts := r.counts()
	total := counts[passed] + counts[failed] + counts[skipped]
	switch {
	case counts[failed] > 0:
		return fmt.Errorf("%d of %s failed", counts[failed], wording.Count(total, "test"))
	case total == 0 && r.options.run != "":
		return fmt.Errorf("no test matches --run %s", r.options.run)
	case r.missesThreshold():
		return fmt.Errorf("coverage is %.1f %%, below the threshold of %g %%", r.Coverage.Percent, r.options.threshold)
	}
	return nil
}

func (r *testReport) missesThreshold() bool {
	return r.Coverage != nil && r.Coverage.Percent < r.options.threshold
}
