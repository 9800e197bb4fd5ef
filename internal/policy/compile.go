// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// program is a compiled policy.
type program struct {
	compiler *ast.Compiler
	store    storage.Store
	// queries holds the queries of each decision that the policy has rules for.
	queries map[string][]gatedQuery
	// origins are the rules of the promised sets. Each element of an answer contains an index into origins.
	origins []origin
	needs   Needs
	doubted []v1alpha1.Diagnostic
	tracer  topdown.QueryTracer // receives the trace events of each evaluation; nil for none
}

// answer is the variable to which a query binds the set of answers.
const answer = ast.Var("answer")

// build compiles a policy's modules. It returns nil if there are diagnostics.
func build(s *Source, d *diagnostics) *program {
	own, chosen := parseModules(s, false, d), parseLibrary(s)
	checkOverlap(own, chosen, d)
	if len(*d) > 0 {
		return nil
	}
	p := &program{queries: map[string][]gatedQuery{}}
	all := maps.Clone(chosen)
	maps.Copy(all, own)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		p.origins = copyRules(all[name], s.Ref(), own[name] != nil, p.origins)
	}
	typeInputs(all)
	data := dataOf(s, d)
	if data == nil {
		return nil
	}
	p.store = inmem.NewFromASTObject(data)
	p.compile(all, s.Prints, d)
	if len(*d) > 0 {
		return nil
	}
	p.checkReach(s, own, data, d)
	p.needs, p.doubted = p.readOf(s), p.doubts(own)
	if n := p.needs.labels(); n > maxUsageLabels {
		d.add(nil, "the rules read the usage of %d labels in input.usage.labels, more than %d: read fewer labels, or move some of the rules to another policy", n, maxUsageLabels)
	}
	if len(*d) > 0 {
		return nil
	}
	return p
}

// parseModules parses the policy's own modules, with or without its tests.
func parseModules(s *Source, tests bool, d *diagnostics) map[string]*ast.Module {
	modules := map[string]*ast.Module{}
	for _, name := range slices.Sorted(maps.Keys(s.Modules)) {
		if testFile(name) && !tests {
			continue
		}
		module, err := parse(name, s.Modules[name])
		switch {
		case err != nil:
			d.addSyntax(s, name, err)
		case module == nil:
			d.add(&ast.Location{File: name, Row: 1, Col: 1}, "the module is empty: begin it with its package, as in package corral.template")
		default:
			checkModule(module, d)
			modules[name] = module
		}
	}
	return modules
}

// parseLibrary returns copies of the library modules that the policy enables.
func parseLibrary(s *Source) map[string]*ast.Module {
	modules := map[string]*ast.Module{}
	for name, m := range libraryFor(s) {
		modules[name] = m.module.Copy()
	}
	return modules
}

// dataOf returns the data document of the rules, or nil if there are diagnostics.
func dataOf(s *Source, d *diagnostics) ast.Object {
	data := map[string]any{}
	maps.Copy(data, s.Data)
	mergeFiles(data, s.DataFiles, d)
	if len(*d) > 0 {
		return nil
	}
	data["parameters"] = notNil(s.Parameters)
	if s.Library != nil {
		data["library"] = withPreset(s.Library)
	}
	value, err := ast.InterfaceToValue(data)
	if err != nil {
		d.add(nil, "spec.data and spec.parameters must be JSON: %v", err)
		return nil
	}
	return value.(ast.Object)
}

// compile checks and compiles all modules, with or without their calls of print, and prepares the queries.
func (p *program) compile(modules map[string]*ast.Module, prints bool, d *diagnostics) {
	ctx := context.Background() // the store is in memory, so nothing blocks
	txn := storage.NewTransactionOrDie(ctx, p.store)
	defer p.store.Abort(ctx, txn)
	p.compiler = newCompiler().WithEnablePrintStatements(prints).WithPathConflictsCheck(storage.NonEmpty(ctx, p.store, txn))
	p.compiler.Compile(modules)
	if p.compiler.Failed() {
		d.addErrors("", withoutCopies(p.compiler.Errors))
		return
	}
	for _, o := range p.origins {
		for _, field := range o.fields {
			if err := p.prepare(o.promise.decision, field); err != nil {
				d.add(nil, "preparing the query of %s: %v", o.promise.decision, err)
			}
		}
	}
}

// prepare creates the query for the rules of a decision that require a field, unless it exists.
func (p *program) prepare(decision, field string) error {
	if slices.ContainsFunc(p.queries[decision], func(q gatedQuery) bool { return q.field == field }) {
		return nil
	}
	query, err := p.compiler.QueryCompiler().Compile(ast.NewBody(ast.Equality.Expr(
		ast.RefTerm(ast.DefaultRootDocument, ast.StringTerm("corral"), ast.StringTerm(decision), ast.StringTerm(answersOf(field))),
		ast.NewTerm(answer),
	)))
	p.queries[decision] = append(p.queries[decision], gatedQuery{field: field, query: query})
	return err
}

// newCompiler returns a compiler with the sandbox and the types of the inputs.
func newCompiler() *ast.Compiler {
	set := ast.NewSchemaSet()
	for name, schema := range schemas() {
		set.Put(ast.Ref{ast.SchemaRootDocument, ast.StringTerm(name)}, schema)
	}
	set.Put(ast.SchemaRootRef, schemas()["any"])
	return ast.NewCompiler().WithStrict(true).WithCapabilities(sandbox()).WithSchemas(set).
		WithUseTypeCheckAnnotations(true).WithEnablePrintStatements(false).SetErrorLimit(maxDiagnostics)
}

// withoutCopies drops errors about the engine's copies of rules, because OPA reports the same errors for the original
// rules. If there are no other errors, it keeps them.
func withoutCopies(errors ast.Errors) ast.Errors {
	kept := slices.DeleteFunc(slices.Clone(errors), func(e *ast.Error) bool { return strings.Contains(e.Message, answers) })
	if len(kept) == 0 {
		return errors
	}
	return kept
}

// version is the version of the engine's answers. It is a part of each digest, so that another version changes all
// digests.
const version = "corral policy 2"

// digest returns a hash of everything that determines a policy's answers.
func digest(s *Source) string {
	modules, library := maps.Clone(s.Modules), map[string]string{}
	maps.DeleteFunc(modules, func(name, _ string) bool { return testFile(name) })
	for name, m := range libraryFor(s) {
		library[name] = m.text
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(jsonOf([]any{version, modules, s.DataFiles, s.Data, s.Parameters, withPreset(s.Library), library})))
}
