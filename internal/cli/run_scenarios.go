// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/review"
)

// runScenarios runs the cases of all scenario files, a suite each.
func (r *testReport) runScenarios(ctx context.Context, w *workspace, only *regexp.Regexp) ([]testSuite, error) {
	files, err := w.scenarios()
	if err != nil {
		return nil, err
	}
	var suites []testSuite
	for _, file := range slices.Sorted(maps.Keys(files)) {
		cases, diagnostics := parseScenarios(shown(file, ""), files[file])
		r.Diagnostics = append(r.Diagnostics, diagnostics...)
		suite := testSuite{Name: shown(file, ""), Kind: kindScenario}
		for _, c := range cases {
			if !only.MatchString(suite.Name + "/" + c.Name) {
				continue
			}
			suite.Tests = append(suite.Tests, r.runCase(ctx, w, c))
		}
		if len(suite.Tests) > 0 {
			suites = append(suites, suite)
		}
	}
	return suites, nil
}

// scenarios reads the scenario files of the folder, and of the folders of policies given, by
// their full names.
func (w *workspace) scenarios() (map[string][]byte, error) {
	all := map[string][]byte{}
	folders := []string{filepath.Join(w.root, filepath.FromSlash(w.path))}
	for _, path := range w.options.paths {
		absolute, err := filepath.Abs(path)
		if err != nil {
			return nil, fmt.Errorf("finding scenarios: %w", err)
		}
		if info, err := os.Stat(absolute); err == nil && info.IsDir() {
			folders = append(folders, absolute)
		}
	}
	for _, folder := range folders {
		root, err := os.OpenRoot(folder)
		if err != nil {
			return nil, fmt.Errorf("finding scenarios: %w", err)
		}
		found := &policyFiles{fsys: root.FS(), files: compile.Files{}, wanted: isScenario}
		err = fs.WalkDir(found.fsys, ".", found.visit)
		_ = root.Close() // nothing was written
		if err != nil {
			return nil, fmt.Errorf("reading scenarios of %s: %w", folder, err)
		}
		for name, data := range found.files {
			all[filepath.Join(folder, filepath.FromSlash(name))] = data
		}
	}
	return all, nil
}

// runCase asks policies what a case asks, and compares.
func (r *testReport) runCase(ctx context.Context, w *workspace, c scenarioCase) testCase {
	began := time.Now()
	t := testCase{Name: c.Name, File: c.file, Line: c.line, Result: passed}
	if c.Expect == nil || *c.Expect == (expectation{}) {
		r.Diagnostics = append(r.Diagnostics, c.problem("expect", "expect is required: scaling, template or update"))
		return t
	}
	q, diagnostics := c.question(w, time.Time{}, "UTC")
	if len(diagnostics) > 0 {
		r.Diagnostics = append(r.Diagnostics, diagnostics...)
		return t
	}
	a, diagnostics := c.asker(ctx, w)
	if len(diagnostics) > 0 {
		r.Diagnostics = append(r.Diagnostics, diagnostics...)
		return t
	}
	lines, because := c.Expect.compare(ctx, a, q)
	if len(lines) > 0 {
		t.Result, t.Failure, t.Because = failed, strings.Join(lines, "\n"), because
	}
	t.Seconds = time.Since(began).Seconds()
	return t
}

// compare asks for each decision that is expected. It returns how the answers differ, and the rules
// that made them.
func (e *expectation) compare(ctx context.Context, a asker, q question) (lines, because []string) {
	if e.Scaling != nil {
		got := a.askScaling(ctx, scalingInput(scheduledAt(q.pool, q.at), q.state, q.at, q.zone))
		if found := e.Scaling.compare(got); len(found) > 0 {
			lines, because = append(lines, found...), append(because, got.changes()...)
		}
	}
	if e.Template != nil {
		in, err := review.TemplateInput(q.pool, q.network)
		if err != nil {
			return append(lines, "template: the pod can't be built: "+err.Error()), because
		}
		got := a.askTemplate(ctx, in)
		if found := e.Template.compare(got); len(found) > 0 {
			lines, because = append(lines, found...), append(because, got.reasons()...)
		}
	}
	if e.Update != nil {
		got := a.askUpdate(ctx, updateInput(q))
		if found := e.Update.compare(got); len(found) > 0 {
			lines, because = append(lines, found...), append(because, got.reasons()...)
		}
	}
	return lines, because
}

// asker asks the policies beside the pools, those of --policy, and those that the case names.
func (c scenarioCase) asker(ctx context.Context, w *workspace) (asker, []v1alpha1.Diagnostic) {
	if len(c.Policies) == 0 {
		return w.asker(), nil
	}
	policies := slices.Clone(w.policies)
	var diagnostics []v1alpha1.Diagnostic
	for i, path := range c.Policies {
		field := fmt.Sprintf("policies[%d]", i)
		if path == "" || filepath.IsAbs(path) {
			return asker{}, []v1alpha1.Diagnostic{c.problem(field, "must be a path relative to this file")}
		}
		more, found, err := w.policiesAt(ctx, filepath.Join(filepath.Dir(c.file), filepath.FromSlash(path)))
		if err != nil {
			return asker{}, []v1alpha1.Diagnostic{c.problem(field, "%v", err)}
		}
		policies, diagnostics = append(policies, more...), append(diagnostics, found...)
	}
	set, twice := setOf(policies)
	return w.askerOf(set, policies), append(diagnostics, twice...)
}
