// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/report"
)

// runScenarios runs the cases of all scenario files. Each file is a suite.
func (r *testReport) runScenarios(ctx context.Context, w *workspace, only *regexp.Regexp) (suites []report.Suite, _ error) {
	files, err := w.scenarios()
	if err != nil {
		return nil, err
	}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		suite := report.Suite{Name: file, Kind: kindScenario}
		cases, diagnostics := parseScenarios(suite.Name, files[file])
		r.Diagnostics = append(r.Diagnostics, diagnostics...)
		for _, c := range cases {
			if only.MatchString(suite.Name + "/" + c.Name) {
				suite.Cases = append(suite.Cases, r.runCase(ctx, w, c))
			}
		}
		suites = append(suites, suite)
	}
	return slices.DeleteFunc(suites, func(s report.Suite) bool { return len(s.Cases) == 0 }), nil
}

// scenarios reads the scenario files in the folder and in the folders of --policy. It returns them by their
// names relative to the current folder.
func (w *workspace) scenarios() (compile.Files, error) {
	all := compile.Files{}
	for _, folder := range append([]string{filepath.Join(w.root, filepath.FromSlash(w.path))}, w.options.paths...) {
		if info, err := os.Stat(folder); err != nil || !info.IsDir() {
			continue
		}
		found, err := readFolder(folder, isScenario)
		if err != nil {
			return nil, fmt.Errorf("reading scenarios of %s: %w", folder, err)
		}
		for name, data := range found {
			all[displayPath(folder, name)] = data
		}
	}
	return all, nil
}

// runCase evaluates the policies for a case, and compares the answers with its expectations.
func (r *testReport) runCase(ctx context.Context, w *workspace, c scenarioCase) report.Case {
	began := time.Now()
	t := report.Case{Name: c.Name, Place: report.Place{File: c.document.file, Line: c.line}, Result: report.Pass}
	q, a, diagnostics := c.ask(ctx, w, time.Time{}, "UTC")
	switch {
	case c.Expect == nil || *c.Expect == (expectation{}):
		r.Diagnostics = append(r.Diagnostics, c.problem("expect", "expect is required: scaling, template or update"))
	case len(diagnostics) > 0:
		r.Diagnostics = append(r.Diagnostics, diagnostics...)
	default:
		lines, reasons := c.Expect.compare(ctx, a, q)
		t.Failure = strings.Join(lines, "\n")
		if len(lines) > 0 {
			t.Result, t.Because = report.Fail, reasons
		}
		t.Output = takeOutput(a.policies)
		t.Seconds = time.Since(began).Seconds()
	}
	return t
}

// asker returns an asker for the policies of the workspace and for the policies that the case adds.
func (c scenarioCase) asker(ctx context.Context, w *workspace) (_ asker, diagnostics []v1alpha1.Diagnostic) {
	if len(c.Policies) == 0 {
		return w.asker, nil
	}
	policies := slices.Clone(w.policies)
	for i, path := range c.Policies {
		field := fmt.Sprintf("policies[%d]", i)
		if path == "" || filepath.IsAbs(path) {
			return asker{}, []v1alpha1.Diagnostic{c.problem(field, "must be a path relative to this file")}
		}
		more, found, err := w.policiesAt(ctx, filepath.Join(filepath.Dir(c.document.file), filepath.FromSlash(path)))
		if err != nil {
			return asker{}, []v1alpha1.Diagnostic{c.problem(field, "%v", err)}
		}
		policies, diagnostics = append(policies, more...), append(diagnostics, found...)
	}
	a, duplicates := w.askerOf(policies)
	return a, append(diagnostics, duplicates...)
}
