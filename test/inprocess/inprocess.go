// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package inprocess compiles definitions and evaluates policies in the test's own process, without resource
// limits. Starting a child process takes most of the run time of a small command, so tests of a command's output
// use this package instead.
package inprocess

import (
	"context"
	"encoding/json"
	"io/fs"
	"sync"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/worker"
)

// Compiler replaces worker.Compiler.
type Compiler struct{}

// Compile compiles the files that a child process would read. It passes the result through JSON, as a child
// process does.
func (Compiler) Compile(_ context.Context, fsys fs.FS, options compile.Options) (result compile.Result, err error) {
	files, diagnostics := compile.Gather(fsys, options.Path)
	if len(diagnostics) > 0 {
		return compile.Result{Diagnostics: diagnostics}, nil
	}
	options.Begin = func(string) {}
	text, err := json.Marshal(worker.Compile(files, options))
	if err != nil {
		return result, err
	}
	return result, json.Unmarshal(text, &result)
}

// Evaluator replaces worker.Evaluator: it loads, evaluates and tests policies. Its zero value is ready to use.
type Evaluator struct {
	mu       sync.Mutex
	policies map[string]*policy.Policy // by reference and digest
}

// Load loads a policy.
func (e *Evaluator) Load(_ context.Context, source policy.Source, _ func() bool) (policy.Facts, []v1alpha1.Diagnostic, error) {
	p := e.loaded(source, policy.Elsewhere(source, policy.Facts{}, e))
	return p.Facts(), p.Diagnostics(), nil
}

// Ask implements policy.Asker.
func (e *Evaluator) Ask(ctx context.Context, p *policy.Policy, q policy.Question) ([]byte, error) {
	return e.loaded(p.Source(), p).Answer(ctx, q)
}

// Test runs a policy's tests.
func (*Evaluator) Test(ctx context.Context, source policy.Source, options policy.TestOptions) (policy.TestReport, []v1alpha1.Diagnostic, error) {
	report, diagnostics := policy.Test(ctx, source, options)
	return report, diagnostics, nil
}

// loaded returns a policy with its compiled rules. It compiles them once.
func (e *Evaluator) loaded(source policy.Source, p *policy.Policy) *policy.Policy {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := p.Ref() + " " + p.Digest()
	if e.policies == nil {
		e.policies = map[string]*policy.Policy{}
	}
	if e.policies[key] == nil {
		e.policies[key], _ = policy.Load(source)
	}
	return e.policies[key]
}
