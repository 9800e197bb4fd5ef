// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/wallclock"
)

// Bounds of a rule. What they keep out makes OPA's compiler work for minutes: the time it
// takes grows with the square of some, and threefold with each comprehension in another.
const (
	maxNesting     = 64
	maxExpressions = 1000
	maxReference   = 64
	maxWith        = 32
	maxClosures    = 8
	// maxClosureCost bounds the sum, over a policy, of 3 to the power of each comprehension's depth.
	maxClosureCost = 400_000
)

// testFile tells whether a module holds tests, which no decision reads.
func testFile(name string) bool { return strings.HasSuffix(name, "_test.rego") }

// checkSource tells of what can be seen without parsing.
func checkSource(s *Source, d *diagnostics) {
	checkModules(s, d)
	for _, pattern := range s.Namespaces {
		if _, err := path.Match(pattern, ""); err != nil {
			d.add(nil, "namespaces: %q is no pattern; write a name, with * for any characters", pattern)
		}
	}
	for _, key := range []string{"library", "parameters", "corral"} {
		if _, ok := s.Data[key]; ok {
			d.add(nil, "spec.data must not have the key %s: %s; rename it", key, reserved[key])
		}
	}
	if s.Library != nil && s.Library.Hours != nil {
		if _, err := wallclock.Location(s.Library.Hours.Zone); err != nil {
			d.add(nil, "spec.library.hours.zone: %v", err)
		}
	}
	checkDepth(s.Data, "spec.data", d)
	checkDepth(s.Parameters, "spec.parameters", d)
}

// checkModules bounds the number and size of modules.
func checkModules(s *Source, d *diagnostics) {
	count, size := 0, len(jsonOf(s.Data))+len(jsonOf(s.Parameters))+len(jsonOf(s.Library))
	for _, name := range slices.Sorted(maps.Keys(s.Modules)) {
		text := s.Modules[name]
		size += len(text)
		if !strings.HasSuffix(name, ".rego") {
			d.add(&ast.Location{File: name}, "a module is named NAME.rego: rename it")
		}
		if !utf8.ValidString(text) {
			d.add(&ast.Location{File: name}, "the module isn't UTF-8 text: save it as UTF-8")
		}
		if !testFile(name) {
			count++
		}
	}
	if count > v1alpha1.MaxPolicyModules {
		d.add(nil, "the policy has %d modules, more than %d: join some, or make two policies of it", count, v1alpha1.MaxPolicyModules)
	}
	if size > v1alpha1.MaxPolicyBytes {
		d.add(nil, "the policy's modules and data take %d bytes, more than %d: make two policies of it", size, v1alpha1.MaxPolicyBytes)
	}
}

// reserved says what the names of data are for that a policy can't use.
var reserved = map[string]string{
	"library":    "data.library is what spec.library says",
	"parameters": "data.parameters is what spec.parameters says",
	"corral":     "data.corral has the packages of the decisions",
}

func jsonOf(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil || string(text) == "null" {
		return nil
	}
	return text
}

func checkDepth(v any, where string, d *diagnostics) {
	if !shallow(v, maxNesting) {
		d.add(nil, "%s is nested more than %d deep: make it flatter", where, maxNesting)
	}
}

func shallow(v any, depth int) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, element := range v {
			if depth == 0 || !shallow(element, depth-1) {
				return false
			}
		}
	case []any:
		for _, element := range v {
			if depth == 0 || !shallow(element, depth-1) {
				return false
			}
		}
	}
	return true
}

// measure bounds how complicated the rules of a policy are.
type measure struct {
	diagnostics *diagnostics
	cost        int
	// of the rule under measurement:
	rule            *ast.Rule
	depth, closures int
	tooMuch         string
}

// module measures each rule of a module, and tells of those out of bounds.
func (m *measure) module(module *ast.Module) {
	if len(module.Package.Path) > maxReference {
		m.diagnostics.add(module.Package.Location, "the package has more than %d parts: shorten its name", maxReference)
	}
	chain := 0
	for _, rule := range module.Rules {
		for r := rule; r != nil && chain < maxExpressions; r, chain = r.Else, chain+1 {
			m.measureRule(r)
		}
		if chain == maxExpressions {
			m.diagnostics.add(rule.Location, "the rule has more than %d else branches: make a table of them in data", maxExpressions)
		}
		chain = 0
	}
	if m.cost > maxClosureCost {
		m.diagnostics.add(module.Package.Location, "comprehensions are nested too deeply too often: make rules of the inner ones")
		m.cost = 0
	}
}

func (m *measure) measureRule(rule *ast.Rule) {
	m.rule, m.depth, m.closures, m.tooMuch = rule, 0, 0, ""
	otherwise := rule.Else
	rule.Else = nil // measured on its own
	m.walk(rule)
	rule.Else = otherwise
	if m.tooMuch != "" {
		m.diagnostics.add(rule.Location, "the rule %s: make several rules of it", m.tooMuch)
	}
}

// walk measures what is below a node, and ends as soon as something is out of bounds.
func (m *measure) walk(node any) {
	visitor := ast.NewBeforeAfterVisitor(m.enter, m.leave)
	visitor.Walk(node)
}

func (m *measure) enter(node any) bool {
	m.depth++
	m.require(m.depth <= 4*maxNesting, "is nested too deeply") // a term is up to four nodes deep
	if isClosure(node) {
		m.closures++
		m.cost += int(math.Pow(3, float64(min(m.closures, maxClosures))))
		m.require(m.closures <= maxClosures, "nests comprehensions too deeply")
	}
	if m.tooMuch == "" {
		m.inspect(node)
	}
	return m.tooMuch != ""
}

// inspect bounds how much there is of one node's parts.
func (m *measure) inspect(node any) {
	switch x := node.(type) {
	case *ast.Head:
		if x.Key != nil { // the visitor leaves it out
			m.walk(x.Key)
		}
	case *ast.TemplateString:
		for _, part := range x.Parts {
			m.walk(part)
		}
	case ast.Body:
		m.require(len(x) <= maxExpressions, "has too many expressions")
	case ast.Ref:
		m.require(len(x) <= maxReference, "has a reference with too many parts")
	case ast.Args:
		m.require(len(x) <= maxReference, "has too many arguments")
	case ast.Call:
		m.require(len(x) <= maxReference, "has a call with too many arguments")
	case *ast.SomeDecl:
		m.require(len(x.Symbols) <= maxReference, "declares too many variables")
	case *ast.Expr:
		m.require(len(x.With) <= maxWith, "has too many replacements by with")
	}
}

func (m *measure) require(ok bool, otherwise string) {
	if !ok && m.tooMuch == "" {
		m.tooMuch = otherwise
	}
}

func (m *measure) leave(node any) {
	m.depth--
	if isClosure(node) {
		m.closures--
	}
}

func isClosure(node any) bool {
	switch node.(type) {
	case *ast.ArrayComprehension, *ast.SetComprehension, *ast.ObjectComprehension, *ast.Every, *ast.Not, *ast.TemplateString:
		return true
	}
	return false
}
