// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/demand"
	"github.com/corral-dev/corral/internal/jobmatch"
	"github.com/corral-dev/corral/internal/schedule"
	"github.com/corral-dev/corral/internal/wording"
	"github.com/corral-dev/corral/internal/worker"
)

// defaultTimeout is the default CPU time for one evaluation of one policy.
const defaultTimeout = time.Second

// policyOptions are the flags that select the policies to evaluate, and limit their time.
type policyOptions struct {
	paths     []string
	namespace string
	timeout   time.Duration
	// record is true if the policies must record the questions to rules that users wrote, and the output of these rules.
	record bool
	// loaded caches the policies of paths, by path.
	loaded map[string][]*declaredPolicy
	// child returns the evaluator, which runs a child process for rules that users wrote. It creates the evaluator on the first
	// call.
	child func() *worker.Evaluator
}

func newPolicyOptions() *policyOptions {
	o := &policyOptions{timeout: defaultTimeout, loaded: map[string][]*declaredPolicy{}}
	o.child = sync.OnceValue(func() *worker.Evaluator {
		limits := worker.DefaultEvaluatorLimits()
		limits.Ask.Usual, limits.Load.Usual = 0, 0 // 0: a user waits for the result, so no request is treated as slow
		limits.Ask.CPU, limits.Ask.Wall = o.timeout, max(limits.Ask.Wall, 10*o.timeout)
		return worker.NewEvaluator(1, limits)
	})
	return o
}

// rules returns the evaluator of the context, or else an evaluator that runs a child process.
func (o *policyOptions) rules(ctx context.Context) Evaluator {
	if given, ok := ctx.Value(enginesKey{}).(engines); ok {
		return given.evaluator
	}
	return o.child()
}

func bindPolicyOptions(c *cobra.Command) *policyOptions {
	o := newPolicyOptions()
	c.Flags().StringArrayVar(&o.paths, "policy", nil,
		"additional policies: a file or folder with manifests, or with *.rego files, which form a ClusterRunnerPolicy with the name of the file or folder; may be repeated")
	bindNamespace(c, &o.namespace)
	c.Flags().DurationVar(&o.timeout, "timeout", o.timeout, "maximum CPU time for one evaluation of one policy")
	return o
}

// inputs are the flags of a command that reads definitions and evaluates policies.
type inputs struct {
	*definitions
	policies *policyOptions
	output   *format
}

// bindInputs adds the flags to a command. The first of the formats is the default.
func bindInputs(c *cobra.Command, formats ...string) *inputs {
	return &inputs{bindDefinitions(c), bindPolicyOptions(c), bindFormat(c, formats...)}
}

// includes reports whether a path of --policy is the file or a folder that contains the file.
func (o *policyOptions) includes(file string) bool {
	absolute, err := filepath.Abs(file)
	return err == nil && slices.ContainsFunc(o.paths, func(given string) bool {
		folder, err := filepath.Abs(given)
		return err == nil && isWithin(filepath.ToSlash(folder), filepath.ToSlash(absolute))
	})
}

func (o *policyOptions) check() error {
	if o.timeout <= 0 {
		return fmt.Errorf("--timeout must be more than 0, found %s", o.timeout)
	}
	return nil
}

// workspace contains the pools that a command works on, and the policies that may bind them.
type workspace struct {
	compiled
	// asker evaluates the loaded policies.
	asker
	options policyOptions
	pools   []declaredPool
	// connections contains the valid connections by NAMESPACE/NAME.
	connections map[string]declaredConnection
}

// declaredConnection is a connection with the object that declares it.
type declaredConnection struct {
	*v1alpha1.GitHubConnection
	object compile.Object
}

// declaredPool is a pool with the object that declares it.
type declaredPool struct {
	*v1alpha1.RunnerPool
	object compile.Object
	plan   *schedule.Plan
	// match is the cached result of workspace.match; nil before the first call.
	match *jobmatch.Pool
}

// open compiles definitions, and loads their policies and the policies of --policy. A workspace with diagnostics is
// incomplete, so the command must report them and stop.
func (in *inputs) open(ctx context.Context, args []string) (*workspace, error) {
	o := in.policies
	if err := o.check(); err != nil {
		return nil, err
	}
	result, err := in.compile(ctx, args)
	if err != nil {
		return nil, err
	}
	if result.onlyPolicies {
		result.Diagnostics = nil
		if len(o.paths) == 0 {
			o.paths = []string{folderOf(args)}
		}
	}
	if named := slices.DeleteFunc(namespacesOf(result.Objects), func(name string) bool { return name == "" }); len(named) == 1 && !result.isAssigned {
		o.namespace = cmp.Or(o.namespace, named[0]) // objects without a namespace belong to the namespace of the pools
	}
	return in.load(ctx, result)
}

// load returns the workspace of compiled objects, with their policies and the policies of --policy.
func (in *inputs) load(ctx context.Context, result compiled) (*workspace, error) {
	w, err := newWorkspace(result, in.policies)
	if err != nil || len(result.Diagnostics) > 0 {
		return w, err
	}
	policies, diagnostics, err := in.policiesOf(ctx, result, in.policies.namespace)
	if err != nil {
		return nil, err
	}
	w.Diagnostics = slices.Concat(w.Diagnostics, w.consentProblems(), diagnostics)
	return w, w.loadPolicies(ctx, policies)
}

// newWorkspace returns a workspace without policies. It decodes the pools and connections among compiled objects, unless
// there are diagnostics.
func newWorkspace(result compiled, o *policyOptions) (*workspace, error) {
	w := &workspace{compiled: result, options: *o, connections: map[string]declaredConnection{}}
	if len(w.Diagnostics) > 0 {
		return w, nil
	}
	fillNamespace(w.Objects, o.namespace)
	for _, object := range w.Objects {
		switch c, pool := (&v1alpha1.GitHubConnection{}), (&v1alpha1.RunnerPool{}); object.Manifest.GetKind() {
		case "GitHubConnection":
			if runtime.DefaultUnstructuredConverter.FromUnstructured(object.Manifest.Object, c) == nil { // the compiler reports errors in connections
				w.connections[wording.Qualified(c.Namespace, c.Name)] = declaredConnection{c, object}
			}
		case "RunnerPool":
			if err := v1alpha1.FromUnstructured(object.Manifest.Object, pool); err != nil {
				return nil, fmt.Errorf("reading %s: %w", object.Path, err)
			}
			plan, problems := schedule.Compile(pool.Spec.Scale.Schedules)
			for _, e := range demand.Check(&pool.Spec) {
				problems = append(problems, schedule.Problem{Path: e.Field, Message: e.ErrorBody()})
			}
			w.pools = append(w.pools, declaredPool{RunnerPool: pool, object: object, plan: plan})
			for _, problem := range problems {
				w.Diagnostics = append(w.Diagnostics, object.Diagnostic("."+problem.Path, problem.Message))
			}
		}
	}
	for i := range w.pools {
		w.Diagnostics = append(w.Diagnostics, w.credentialProblems(&w.pools[i])...)
	}
	// Report a mistake in a definition that several pools share only once.
	w.Diagnostics = slices.CompactFunc(w.Diagnostics, func(a, b v1alpha1.Diagnostic) bool {
		b.Path = a.Path
		return a == b && a.Line > 0
	})
	return w, nil
}

// loadPolicies loads the given policies and the policies of --policy.
func (w *workspace) loadPolicies(ctx context.Context, policies []*declaredPolicy) error {
	var duplicates []v1alpha1.Diagnostic
	diagnostics, err := w.load(ctx, policies)
	for _, path := range w.options.paths {
		if err != nil {
			return err
		}
		var more []*declaredPolicy
		var found []v1alpha1.Diagnostic
		more, found, err = w.policiesAt(ctx, path)
		policies, diagnostics = append(policies, more...), append(diagnostics, found...)
	}
	w.asker, duplicates = w.askerOf(policies)
	w.Diagnostics = slices.Concat(w.Diagnostics, diagnostics, duplicates)
	return err
}

func (w *workspace) load(ctx context.Context, policies []*declaredPolicy) (diagnostics []v1alpha1.Diagnostic, err error) {
	for _, p := range policies {
		found, err := p.load(ctx, w.options)
		if err != nil {
			return nil, err
		}
		diagnostics = append(diagnostics, found...)
	}
	return diagnostics, nil
}

// policiesAt returns the policies of a path. It loads them on the first call.
func (w *workspace) policiesAt(ctx context.Context, path string) ([]*declaredPolicy, []v1alpha1.Diagnostic, error) {
	if known, ok := w.options.loaded[path]; ok {
		return known, nil, nil
	}
	policies, diagnostics, err := w.policiesIn(ctx, path)
	if err != nil || len(diagnostics) > 0 {
		return nil, diagnostics, err
	}
	w.options.loaded[path] = policies
	for _, p := range policies {
		p.isFromFlag = true
	}
	diagnostics, err = w.load(ctx, policies)
	return policies, diagnostics, err
}
