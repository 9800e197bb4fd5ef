// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/cover"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/tester"

	_ "github.com/corral-dev/corral/internal/policy" // registers the custom functions for rules
	"github.com/corral-dev/corral/policies"
)

// leastCoverage is the percentage of the library's lines that its tests must cover.
const leastCoverage = 95

// parse parses the Rego files of a file system.
func parse(t *testing.T, files fs.FS) map[string]*ast.Module {
	t.Helper()
	modules := map[string]*ast.Module{}
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".rego") {
			return err
		}
		text, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		modules[path], err = ast.ParseModuleWithOpts(path, string(text), ast.ParserOptions{
			RegoVersion: ast.RegoV1, ProcessAnnotation: true,
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return modules
}

// runTests runs the Rego tests of the modules, and returns their coverage.
func runTests(t *testing.T, modules map[string]*ast.Module) *cover.Cover {
	t.Helper()
	coverage := cover.New()
	compiler := ast.NewCompiler().WithStrict(true).WithEnablePrintStatements(true)
	runner := tester.NewRunner().SetCompiler(compiler).SetStore(inmem.New()).SetModules(modules).
		SetTimeout(time.Minute).CapturePrintOutput(true).RaiseBuiltinErrors(true).SetCoverageQueryTracer(coverage)
	results, err := runner.RunTests(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ran := 0
	for result := range results {
		ran++
		if result.Fail || result.Error != nil {
			t.Errorf("%s: %s.%s failed: %v\n%s", result.Location, result.Package, result.Name, result.Error, result.Output)
		}
	}
	if ran == 0 {
		t.Error("there are no tests")
	}
	return coverage
}

func TestTheLibrary(t *testing.T) {
	modules := parse(t, policies.FS)
	report := runTests(t, modules).Report(modules)
	covered, lines := 0, 0
	for name, file := range report.Files {
		if strings.HasSuffix(name, "_test.rego") {
			continue
		}
		covered, lines = covered+file.CoveredLines, lines+file.CoveredLines+file.NotCoveredLines
		for _, missed := range file.NotCovered {
			t.Logf("%s:%d-%d is not covered", name, missed.Start.Row, missed.End.Row)
		}
	}
	if lines == 0 || covered*100 < leastCoverage*lines {
		t.Errorf("the tests cover %d of %d lines, less than %d %%", covered, lines, leastCoverage)
	}
}
