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

// promise describes a set that a decision reads.
type promise struct {
	decision, set string
	// keys are the allowed keys of an element, and required the mandatory ones.
	keys, required []string
	// choices are the allowed values of a key.
	choices map[string][]string
	// plain is true if an element may be a string.
	plain bool
	// example is a valid element, which messages show.
	example string
}

// name returns the name of the set, with its package.
func (p *promise) name() string { return "corral." + p.decision + "." + p.set }

// promises lists all sets that decisions read. The engine reads nothing else from policies.
var promises = []promise{
	{
		decision: DecisionScaling, set: "limit",
		keys:     []string{"field", "atMost", "atLeast", "reason", "until", "assignedJobs"},
		required: []string{"field"},
		choices:  map[string][]string{"field": fields, "assignedJobs": assignedJobs},
		example:  `{"field": "max", "atMost": 10, "reason": "…"}`,
	},
	{decision: DecisionTemplate, set: "deny", keys: findingKeys, required: []string{"msg"}, plain: true, example: `"…"`},
	{decision: DecisionTemplate, set: "warn", keys: findingKeys, required: []string{"msg"}, plain: true, example: `"…"`},
	{
		decision: DecisionUpdate, set: "rollout",
		keys:    []string{"hold", "strategy", "maxSurge", "maxUnavailable", "canary", "reason", "until"},
		choices: map[string][]string{"strategy": {"RollingUpdate", "Recreate", "OnIdle"}},
		example: `{"hold": true, "reason": "…"}`,
	},
}

var findingKeys = []string{"msg", "path", "code", "severity", "remediation"}

// packageName returns the name of a module's package, without the prefix "data.".
func packageName(module *ast.Module) string {
	return strings.TrimPrefix(module.Package.Path.String(), "data.")
}

// promised returns the promise whose set has the package and name of a rule, or nil.
func promised(module *ast.Module, rule *ast.Rule) *promise {
	name := ruleName(rule)
	for i, p := range promises {
		if packageName(module) == "corral."+p.decision && name == p.set {
			return &promises[i]
		}
	}
	return nil
}

// ruleName returns the first part of a rule's name.
func ruleName(rule *ast.Rule) string {
	name, _ := rule.Head.Ref()[0].Value.(ast.Var)
	return string(name)
}

// isSet reports whether a rule adds elements to the set with its name.
func isSet(rule *ast.Rule) bool {
	return rule.Head.RuleKind() == ast.MultiValue && len(rule.Head.Ref()) == 1 && !rule.Default && len(rule.Head.Args) == 0
}

// checkModule reports constructs that the engine forbids although OPA allows them.
func checkModule(module *ast.Module, d *diagnostics) {
	parts := strings.Split(packageName(module), ".")
	if why, ok := reserved[parts[0]]; ok && parts[0] != "corral" {
		d.add(module.Package.Location, "a package can't be named %s: %s; rename it", packageName(module), why)
	}
	for _, rule := range module.Rules {
		if strings.HasPrefix(ruleName(rule), "__") {
			d.add(rule.Location, "names that begin with __ are for the engine: rename %s", ruleName(rule))
		}
		p := promised(module, rule)
		switch {
		case p == nil:
		case !isSet(rule):
			d.add(rule.Location, "%s", noSet(p, rule))
		default:
			checkElement(p, rule.Head.Key, d)
		}
	}
}

// noSet explains why a rule that should add to a set does not.
func noSet(p *promise, rule *ast.Rule) string {
	name := p.name()
	example := fmt.Sprintf("%s contains %s if { … }", p.set, p.example)
	switch {
	case rule.Default:
		return fmt.Sprintf("%s can't have a default: it is a set, empty if no rule adds to it; remove the default", name)
	case len(rule.Head.Args) > 0:
		return fmt.Sprintf("%s can't be a function: it is a set; write %s", name, example)
	case rule.Head.RuleKind() == ast.MultiValue:
		return fmt.Sprintf("%s can't have sets in it: it is a set itself; write %s", name, example)
	case len(rule.Head.Ref()) > 1:
		return fmt.Sprintf("%s would have the value true for each key, and say nothing: it is a set; write %s", name, example)
	case rule.Head.Value != nil && rule.Head.Value.Equal(ast.InternedTerm(true)):
		return fmt.Sprintf("%s would be true, and say nothing: it is a set; write %s", name, example)
	default:
		return fmt.Sprintf("%s can't have one value: it is a set that rules add to; write %s", name, example)
	}
}

// checkElement reports errors in an element that are visible in the rule's head.
func checkElement(p *promise, key *ast.Term, d *diagnostics) {
	switch value := key.Value.(type) {
	case ast.Boolean, ast.Null, ast.Number, *ast.Array, ast.Set:
		d.add(key.Location, "an element of %s can't be %s, which says nothing: write %s contains %s if { … }", p.name(), key, p.set, p.example)
	case ast.String:
		if !p.plain {
			d.add(key.Location, "an element of %s can't be a string: write %s contains %s if { … }", p.name(), p.set, p.example)
		}
	case ast.Object:
		checkObject(p, key, value, d)
	}
}

func checkObject(p *promise, key *ast.Term, object ast.Object, d *diagnostics) {
	var have []string
	open := false // true if some keys are only known when the rule runs
	object.Foreach(func(k, v *ast.Term) {
		property, ok := k.Value.(ast.String)
		if !ok {
			open = true
			return
		}
		have = append(have, string(property))
		if !slices.Contains(p.keys, string(property)) {
			d.add(cmp.Or(k.Location, key.Location), "an element of %s has no %s: %s", p.name(), property, oneOf(string(property), p.keys))
		}
		if word, ok := v.Value.(ast.String); ok && p.choices[string(property)] != nil && !slices.Contains(p.choices[string(property)], string(word)) {
			d.add(cmp.Or(v.Location, key.Location), "%s of %s can't be %q: %s", property, p.name(), string(word), oneOf(string(word), p.choices[string(property)]))
		}
	})
	for _, required := range p.required {
		if !open && !slices.Contains(have, required) {
			d.add(key.Location, "an element of %s must have %s: write %s contains %s if { … }", p.name(), required, p.set, p.example)
		}
	}
}

// checkOverlap reports rules with the same name as a library rule. OPA would merge the two.
func checkOverlap(own, library map[string]*ast.Module, d *diagnostics) {
	taken := map[string]bool{}
	for _, module := range library {
		for _, rule := range module.Rules {
			if promised(module, rule) == nil {
				taken[packageName(module)+"."+ruleName(rule)] = true
			}
		}
	}
	for _, file := range slices.Sorted(maps.Keys(own)) {
		for _, rule := range own[file].Rules {
			if name := packageName(own[file]) + "." + ruleName(rule); taken[name] {
				d.add(rule.Location, "the built-in library already has a rule %s: rename this rule", name)
			}
		}
	}
}
