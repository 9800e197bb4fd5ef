// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
)

// constant is the value of a rule of the library that reads data and no input: the same for every decision, it is
// computed once.
type constant struct {
	ref   ast.Ref
	value *ast.Term
}

// settle computes the constants that the answers of each decision read.
func (p *program) settle() error {
	p.constants = map[string][]constant{}
	for decision := range p.queries {
		var from []*ast.Rule
		p.rules(func(_ string, module *ast.Module, rule *ast.Rule) {
			if isAnswers(rule) && packageName(module) == "corral."+decision {
				from = append(from, rule)
			}
		})
		known := map[string]bool{}
		for rule := range p.reach(from...) {
			ref := rule.Module.Package.Path.Extend(rule.Head.Ref())
			if known[ref.String()] || !p.isConstant(rule) {
				continue
			}
			known[ref.String()] = true
			value, err := p.valueOf(ref)
			if err != nil {
				return err
			}
			if value != nil {
				p.constants[decision] = append(p.constants[decision], constant{ref: ref, value: value})
			}
		}
	}
	return nil
}

// isConstant tells whether a rule of the library reads data, and no input on any way.
func (p *program) isConstant(rule *ast.Rule) bool {
	if !strings.HasPrefix(rule.Location.File, libraryPrefix) || len(rule.Head.Args) > 0 || len(rule.Head.Ref()) != 1 || isAnswers(rule) {
		return false
	}
	reads, constant := false, true
	for _, each := range p.compiler.GetRulesExact(rule.Module.Package.Path.Extend(rule.Head.Ref())) {
		for reached := range p.reach(each) {
			ast.WalkRefs(reached, func(ref ast.Ref) bool {
				reads = reads || ref.HasPrefix(libraryData)
				constant = constant && !ref[0].Equal(ast.InputRootDocument)
				return false
			})
		}
	}
	return reads && constant
}

var libraryData = ast.Ref{ast.DefaultRootDocument, ast.StringTerm("library")}

// valueOf returns the value of a rule; nil if it has none.
func (p *program) valueOf(ref ast.Ref) (value *ast.Term, err error) {
	ctx := context.Background() // the library's rules end
	txn, err := p.store.NewTransaction(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading data: %w", err)
	}
	defer p.store.Abort(ctx, txn)
	query, err := p.compiler.QueryCompiler().Compile(ast.NewBody(ast.Equality.Expr(ast.NewTerm(ref), ast.NewTerm(answer))))
	if err != nil {
		return nil, fmt.Errorf("preparing %s: %w", ref, err)
	}
	err = topdown.NewQuery(query).WithCompiler(p.compiler).WithStore(p.store).WithTransaction(txn).WithStrictBuiltinErrors(true).
		Iter(ctx, func(result topdown.QueryResult) error {
			value = result[answer]
			return nil
		})
	if err != nil {
		return nil, fmt.Errorf("computing %s: %w", ref, err)
	}
	return value, nil
}
