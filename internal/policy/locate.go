// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// answers is the set, in the package of a decision, that the engine asks for. It has each
// element of the promised sets as {"v": element, "i": index of the rule that gave it}.
const answers = "__answers"

// origin is a rule of a promised set, and what its metadata says for all its elements.
type origin struct {
	promise                            *promise
	rule                               v1alpha1.RuleReference
	title, code, severity, remediation string
	// fields of which a pod must set one for the rule to hold; "" alone if it may hold for any.
	fields []string
}

// copyRules adds to a module, for each rule of a promised set, one of a set of answers. The
// rules stay as they are for others that read them.
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

// copyRule adds a rule of the set of that name, with the index in each element.
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
	for _, a := range rule.Annotations {
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
		Policy: policy, Name: fmt.Sprintf("corral.%s.%s", p.decision, p.set),
		File: rule.Location.File, Line: rule.Location.Row,
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

// typeInputs lets each package know the input of its decision, and any other all inputs.
// What modules say of schemas themselves is left out.
func typeInputs(modules []*ast.Module) {
	packages := map[string]*ast.Annotations{}
	for _, module := range modules {
		for _, a := range module.Annotations {
			a.Schemas = nil
			if a.Scope == "package" && packages[packageName(module)] == nil {
				packages[packageName(module)] = a
			}
		}
	}
	for _, module := range modules {
		name := packageName(module)
		a := packages[name]
		if a == nil {
			a = (&ast.Annotations{Scope: "package", Location: module.Package.Location}).Copy(module.Package)
			module.Annotations = append(module.Annotations, a)
			packages[name] = a
		}
		schema := "any"
		for decision := range inputs {
			if name == "corral."+decision {
				schema = decision
			}
		}
		a.Schemas = []*ast.SchemaAnnotation{{Path: ast.InputRootRef, Schema: schemaRef(schema)}}
	}
}

func schemaRef(name string) ast.Ref {
	return ast.Ref{ast.SchemaRootDocument, ast.StringTerm(name)}
}
