// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
)

// rules calls f for each rule of the compiled modules, in the order of files and lines.
func (p *program) rules(f func(file string, module *ast.Module, rule *ast.Rule)) {
	for _, file := range slices.Sorted(maps.Keys(p.compiler.Modules)) {
		module := p.compiler.Modules[file]
		for _, rule := range module.Rules {
			f(file, module, rule)
		}
	}
}

// reach returns all rules that the given rules read, including themselves.
func (p *program) reach(from ...*ast.Rule) map[*ast.Rule]bool {
	reached := map[*ast.Rule]bool{}
	for len(from) > 0 {
		rule := from[len(from)-1]
		from = from[:len(from)-1]
		if reached[rule] {
			continue
		}
		reached[rule] = true
		for dependency := range p.compiler.Graph.Dependencies(rule) {
			from = append(from, dependency.(*ast.Rule))
		}
		if rule.Else != nil {
			from = append(from, rule.Else)
		}
	}
	return reached
}

// checkReach reports rules that are never read, and references to missing rules and data.
func (p *program) checkReach(s *Source, own map[string]*ast.Module, data ast.Object, d *diagnostics) {
	if s.Partial {
		return
	}
	var entryRules []*ast.Rule
	p.rules(func(_ string, module *ast.Module, rule *ast.Rule) {
		if promised(module, rule) != nil || isAnswers(rule) || strings.HasPrefix(ruleName(rule), "test_") {
			entryRules = append(entryRules, rule)
		}
	})
	reached, given := p.reach(entryRules...), p.withTargets()
	var inTests map[string]bool
	p.rules(func(file string, module *ast.Module, rule *ast.Rule) {
		if own[file] == nil {
			return
		}
		p.checkReferences(rule, data, given, d)
		if reached[rule] || !strings.HasPrefix(packageName(module)+".", "corral.") {
			return
		}
		if inTests == nil {
			inTests = namesInTests(s)
		}
		if !inTests[ruleName(rule)] {
			at, message := unread(module, rule)
			d.add(at, "%s", message)
		}
	})
	if len(own) > 0 && len(p.queries) == 0 && len(*d) == 0 {
		reportNoDecision(own, d)
	}
}

// reportNoDecision reports that no rule of the policy is ever evaluated. If the policy has only one module and its
// package is not one of Corral's, the diagnostic names the package.
func reportNoDecision(own map[string]*ast.Module, d *diagnostics) {
	for _, module := range own {
		if len(own) == 1 && !strings.HasPrefix(packageName(module)+".", "corral.") {
			d.add(module.Package.Location, "%s", otherPackage(packageName(module)))
		}
	}
	if len(*d) == 0 {
		d.add(nil, "no rule of this policy is ever evaluated: write rules corral.scaling.limit, corral.template.deny, corral.template.warn or corral.update.rollout")
	}
}

// withTargets returns the references that rules replace with the keyword with.
func (p *program) withTargets() []ast.Ref {
	var targets []ast.Ref
	p.rules(func(_ string, _ *ast.Module, rule *ast.Rule) {
		ast.WalkWiths(rule, func(w *ast.With) bool {
			if target, ok := w.Target.Value.(ast.Ref); ok {
				targets = append(targets, target)
			}
			return false
		})
	})
	return targets
}

// unread returns a message about a rule that is never read, with a suggestion of what its author meant, and the
// position to change.
func unread(module *ast.Module, rule *ast.Rule) (*ast.Location, string) {
	name, of := ruleName(rule), packageName(module)
	var sets, packages []string
	for _, p := range promises {
		full := "corral." + p.decision
		packages = append(packages, full)
		if full == of {
			sets = append(sets, p.set)
		}
	}
	if close := closest(of, packages); sets == nil && close != "" {
		return module.Package.Location, fmt.Sprintf("package %s is read by no decision: did you mean package %s?", of, close)
	}
	message := fmt.Sprintf("rule %s of the package %s is read by no decision and no test: ", name, of)
	if sets == nil {
		return rule.Location, message + "remove it; decisions ask " + strings.Join(slices.Compact(packages), ", ")
	}
	return rule.Location, message + didYouMean(name, sets, "remove it, or read it in a rule of "+strings.Join(sets, " or "))
}

// namesInTests returns all names and strings in the policy's tests, because a test may refer to a rule by any of them.
func namesInTests(s *Source) map[string]bool {
	names, ignored := map[string]bool{}, diagnostics{} // the test run reports these diagnostics
	for file, module := range parseModules(s, true, &ignored) {
		if !testFile(file) {
			continue
		}
		ast.WalkTerms(module, func(t *ast.Term) bool {
			switch v := t.Value.(type) {
			case ast.Var:
				names[string(v)] = true
			case ast.String:
				names[string(v)] = true
			}
			return false
		})
	}
	return names
}

// checkReferences reports references below data that no rule, no data and no keyword with defines.
func (p *program) checkReferences(rule *ast.Rule, data ast.Object, given []ast.Ref, d *diagnostics) {
	seen := map[string]bool{}
	ast.WalkTerms(rule, func(t *ast.Term) bool {
		ref, ok := t.Value.(ast.Ref)
		if !ok || !ref[0].Equal(ast.DefaultRootDocument) {
			return false
		}
		prefix := ref.ConstantPrefix()
		if seen[prefix.String()] || len(p.compiler.GetRules(prefix)) > 0 || slices.ContainsFunc(given, prefix.HasPrefix) {
			return false
		}
		seen[prefix.String()] = true
		if why := p.undefined(prefix, data); why != "" {
			d.add(cmp.Or(t.Location, rule.Location), "%s: %s", prefix, why)
		}
		return false
	})
}

// undefined explains why a reference that no rule defines is undefined. It returns "" if the policy's data defines it.
func (p *program) undefined(ref ast.Ref, data ast.Object) string {
	if len(ref) > 1 && ref[1].Equal(ast.StringTerm("corral")) {
		return "this policy has no such rule; " + p.similar(ref.String())
	}
	value := ast.Value(data)
	for i, key := range ref[1:] {
		next, err := value.Find(ast.Ref{key})
		if err == nil {
			value = next
			continue
		}
		parent, advice := ref[:i+1].String(), "add it to the policy's data"
		if i > 0 && ref[1].Equal(ast.StringTerm("parameters")) {
			advice = fmt.Sprintf("set it in spec.parameters; one that may be left out is read as object.get(%s, %s, …)", parent, key)
		}
		var known []string
		if object, ok := value.(ast.Object); ok {
			for _, k := range object.Keys() {
				known = append(known, textOf(k))
			}
		}
		return fmt.Sprintf("%s has no %s; %s", parent, key, didYouMean(textOf(key), known, advice))
	}
	return ""
}

// similar suggests a rule for a reference to a missing rule.
func (p *program) similar(name string) string {
	var known []string
	p.rules(func(_ string, module *ast.Module, rule *ast.Rule) {
		if !isAnswers(rule) {
			known = append(known, module.Package.Path.String()+"."+ruleName(rule))
		}
	})
	return didYouMean(name, known, "define it, or switch on the part of the library (spec.library) that has it")
}

// readOf returns the library's ceilings and the parts of the input that user-written scaling rules read.
func (p *program) readOf(s *Source) Needs {
	var needs Needs
	if s.Library != nil {
		needs.Ceilings = s.Library.Ceilings
	}
	var entryRules []*ast.Rule
	p.rules(func(_ string, module *ast.Module, rule *ast.Rule) {
		if o := promised(module, rule); o != nil && o.decision == DecisionScaling && !strings.HasPrefix(rule.Location.File, libraryPrefix) {
			entryRules = append(entryRules, rule)
		}
	})
	for rule := range p.reach(entryRules...) {
		ast.WalkRefs(rule, func(ref ast.Ref) bool {
			if ref[0].Equal(ast.InputRootDocument) {
				needs.add(ref)
			}
			return false
		})
	}
	return needs.and(Needs{})
}
