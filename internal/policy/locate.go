// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// answers is the set in a decision's package that the engine queries. It contains each element of the promised sets as
// {"v": element, "i": index of the rule that produced it}.
const answers = "__answers"

// origin is a rule of a promised set, with the metadata that applies to all its elements.
type origin struct {
	promise                            *promise
	rule                               v1alpha1.RuleReference
	title, code, severity, remediation string
	// fields contains names of fields: the rule can hold only for pods that set at least one of them. It contains only ""
	// if the rule can hold for any pod.
	fields []string
}

// copyRules adds a copy of each rule of a promised set to the module. The copy adds to the set of answers. The original
// rules remain, because other rules may read them.
func copyRules(module *ast.Module, policy string, own bool, origins []origin) []origin {
	for _, rule := range module.Rules[:len(module.Rules):len(module.Rules)] {
		p := promised(module, rule)
		if p == nil || !isSet(rule) {
			continue
		}
		o := originOf(p, rule, policy, own)
		for _, field := range o.fields {
			copyRule(module, rule, answersOf(field), len(origins))
		}
		origins = append(origins, o)
	}
	return origins
}

// copyRule adds a copy of a rule to the module. The copy adds to the given set, and each of its elements contains the
// index of the rule's origin.
func copyRule(module *ast.Module, rule *ast.Rule, set string, index int) {
	c := rule.Copy()
	c.Annotations = nil
	c.Head.Name = ""
	c.Head.SetRef(ast.Ref{ast.NewTerm(ast.Var(set)).SetLocation(rule.Head.Location)})
	c.Head.Key = ast.ObjectTerm(
		ast.Item(ast.StringTerm("v"), c.Head.Key),
		ast.Item(ast.StringTerm("i"), ast.InternedTerm(index)),
	).SetLocation(rule.Head.Location)
	module.Rules = append(module.Rules, c)
	for _, a := range rule.Annotations { // the copy may call rego.metadata.rule()
		if a.Scope == "rule" {
			module.Annotations = append(module.Annotations, a.Copy(c))
		}
	}
}

func originOf(p *promise, rule *ast.Rule, policy string, own bool) origin {
	o := origin{promise: p, fields: []string{""}}
	if fields := onlyWith(rule); !own && len(fields) > 0 {
		o.fields = fields
	}
	for _, a := range rule.Annotations {
		if a.Scope != "rule" {
			continue
		}
		o.title, o.code = a.Title, custom(a, "code")
		o.severity, o.remediation = custom(a, "severity"), custom(a, "remediation")
	}
	o.rule = v1alpha1.RuleReference{
		Policy: policy, Name: p.name(),
		File: rule.Location.File, Line: v1alpha1.LineNumber(rule.Location.Row),
	}
	if o.code != "" {
		o.rule.Name += "[" + o.code + "]"
	}
	return o
}

func custom(a *ast.Annotations, key string) string {
	text, _ := a.Custom[key].(string)
	return text
}

// typeInputs assigns the schema of its input to the package of each decision; the compiler has the schema for all other
// packages. It removes the modules' own schema annotations. It also removes the metadata of packages: OPA accepts only
// one metadata block for each package, but users copy several recipes, each with its own block, into one policy.
func typeInputs(modules map[string]*ast.Module) {
	for _, module := range modules {
		module.Annotations = slices.DeleteFunc(module.Annotations, func(a *ast.Annotations) bool {
			a.Schemas = nil
			return a.Scope == "package"
		})
	}
	maps.Copy(modules, inputModules())
}

// inputModules have no rules, but name the schema of each decision's input.
var inputModules = sync.OnceValue(func() map[string]*ast.Module {
	modules := map[string]*ast.Module{}
	for decision := range inputs {
		name := libraryPrefix + "inputs/" + decision + ".rego"
		text := fmt.Sprintf("# METADATA\n# scope: package\n# schemas:\n# - input: schema.%[1]s\npackage corral.%[1]s\n", decision)
		modules[name] = mustParse(name, text)
	}
	return modules
})
