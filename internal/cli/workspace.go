// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/schedule"
	"github.com/corral-dev/corral/internal/worker"
)

// defaultTimeout bounds one evaluation on the command line.
const defaultTimeout = time.Second

// policyOptions say which policies a command asks, and how long it waits for them.
type policyOptions struct {
	paths     []string
	namespace string
	timeout   time.Duration
	// record what rules are asked.
	record bool
	// child evaluates policies that users wrote in a child process.
	child func() (*worker.Evaluator, error)
}

func newPolicyOptions() *policyOptions {
	o := &policyOptions{timeout: defaultTimeout}
	o.child = sync.OnceValues(func() (*worker.Evaluator, error) {
		limits := worker.DefaultEvaluatorLimits()
		limits.Ask.Usual, limits.Load.Usual = 0, 0 // somebody waits
		limits.Ask.CPU, limits.Ask.Wall = o.timeout, max(limits.Ask.Wall, 10*o.timeout)
		return worker.NewEvaluator(1, limits)
	})
	return o
}

// rules returns the evaluator of the context, or a child process.
func (o *policyOptions) rules(ctx context.Context) (Evaluator, error) {
	if given, ok := ctx.Value(enginesKey{}).(engines); ok {
		return given.evaluator, nil
	}
	return o.child()
}

func bindPolicyOptions(c *cobra.Command) *policyOptions {
	o := newPolicyOptions()
	flags := c.Flags()
	flags.StringArrayVar(&o.paths, "policy", nil,
		"more policies: a file or folder of manifests, or of *.rego files, which become a ClusterRunnerPolicy named after it; may be repeated")
	bindNamespace(c, &o.namespace)
	flags.DurationVar(&o.timeout, "timeout", defaultTimeout, "longest CPU time for one evaluation of one policy")
	return o
}

// workspace is what a command works on: pools, and the policies that may bind them.
type workspace struct {
	compiled
	options  policyOptions
	pools    []declaredPool
	policies []*declaredPolicy
	set      *policy.Set
	// given are the policies of paths that were read already.
	given map[string][]*declaredPolicy
	// declared are the connections' specs, once they were asked for.
	declared map[string]map[string]any
}

// declaredPool is a pool, and where it is declared.
type declaredPool struct {
	*v1alpha1.RunnerPool
	object compile.Object
	plan   *schedule.Plan
}

// open compiles definitions and loads the policies beside them and those given. With
// diagnostics there is nothing to go on with.
func open(ctx context.Context, d *definitions, o *policyOptions, args []string) (*workspace, error) {
	if o.timeout <= 0 {
		return nil, fmt.Errorf("--timeout must be more than 0, found %s", o.timeout)
	}
	result, err := d.compile(ctx, args)
	if err != nil {
		return nil, err
	}
	return workOn(ctx, result, o, policiesBeside)
}

// workOn loads the policies of what was compiled, as read returns them, and those given.
func workOn(ctx context.Context, result compiled, o *policyOptions, read func(compiled, string) ([]*declaredPolicy, error)) (*workspace, error) {
	w, err := newWorkspace(result, o)
	if err != nil || len(result.Diagnostics) > 0 {
		return w, err
	}
	policies, err := read(result, o.namespace)
	if err != nil {
		return nil, err
	}
	return w, w.loadPolicies(ctx, policies)
}

// newWorkspace reads the pools among objects, unless they have diagnostics. No policy is loaded yet.
func newWorkspace(result compiled, o *policyOptions) (*workspace, error) {
	w := &workspace{compiled: result, options: *o, given: map[string][]*declaredPolicy{}}
	if len(w.Diagnostics) > 0 {
		return w, nil
	}
	fillNamespace(w.Objects, o.namespace)
	credentials := w.credentials()
	for _, object := range w.Objects {
		if object.Manifest.GetKind() != "RunnerPool" {
			continue
		}
		pool := &v1alpha1.RunnerPool{}
		if err := v1alpha1.FromUnstructured(object.Manifest.Object, pool); err != nil {
			return nil, fmt.Errorf("reading %s: %w", object.Path, err)
		}
		plan, problems := schedule.Compile(pool.Spec.Scale.Schedules)
		p := declaredPool{pool, object, plan}
		w.pools = append(w.pools, p)
		w.Diagnostics = append(w.Diagnostics, p.diagnose(append(problems, demandProblems(pool)...))...)
		w.Diagnostics = append(w.Diagnostics, p.reads(credentials[p.Namespace])...)
	}
	return w, nil
}

// loadPolicies loads the policies beside the pools and those of --policy.
func (w *workspace) loadPolicies(ctx context.Context, policies []*declaredPolicy) error {
	for _, p := range policies {
		diagnostics, err := p.load(ctx, w.options)
		if err != nil {
			return err
		}
		w.Diagnostics = append(w.Diagnostics, diagnostics...)
	}
	for _, path := range w.options.paths {
		more, diagnostics, err := w.policiesAt(ctx, path)
		if err != nil {
			return err
		}
		policies = append(policies, more...)
		w.Diagnostics = append(w.Diagnostics, diagnostics...)
	}
	w.policies = policies
	set, diagnostics := setOf(policies)
	w.set = set
	w.Diagnostics = append(w.Diagnostics, diagnostics...)
	return nil
}

// policiesAt loads the policies of a path, once.
func (w *workspace) policiesAt(ctx context.Context, path string) ([]*declaredPolicy, []v1alpha1.Diagnostic, error) {
	if known, ok := w.given[path]; ok {
		return known, nil, nil
	}
	loader := policyLoader{compiler: w.compiler, namespace: w.options.namespace}
	policies, diagnostics, err := loader.read(ctx, path)
	if err != nil || len(diagnostics) > 0 {
		return nil, diagnostics, err
	}
	for _, p := range policies {
		found, err := p.load(ctx, w.options)
		if err != nil {
			return nil, nil, err
		}
		diagnostics = append(diagnostics, found...)
	}
	w.given[path] = policies
	return policies, diagnostics, nil
}

// setOf makes a set of policies; two of the same name are a problem.
func setOf(policies []*declaredPolicy) (*policy.Set, []v1alpha1.Diagnostic) {
	first := map[string]*declaredPolicy{}
	var loaded []*policy.Policy
	var diagnostics []v1alpha1.Diagnostic
	for _, p := range policies {
		if p.testsOnly {
			continue
		}
		ref := p.source.Ref()
		if other, taken := first[ref]; taken {
			diagnostics = append(diagnostics, v1alpha1.Diagnostic{
				File: p.origin.File, Line: p.origin.Line, Column: p.origin.Column,
				Message: fmt.Sprintf("%s is declared twice, here and in %s", ref, other.origin),
			})
			continue
		}
		first[ref] = p
		loaded = append(loaded, p.loaded)
	}
	return policy.NewSet(loaded...), diagnostics
}
