// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"
	"github.com/open-policy-agent/opa/v1/types"
)

// A value can be one in memory and very many when it is looked at: [[x, x], [x, x]] has x four
// times, and ten lines of such make more than any machine can compare. OPA compares without a
// look at the deadline, and by recursion, whose stack can't be recovered when it overflows. So
// what the rules of a policy make is looked at as it is made: bodies get a call of lightFunction after
// each expression that makes a value of others, and the values of whole rules are looked at when
// they are cached. The built-in library does without.

// maxWeight bounds a value: partWeight for each of its parts, and its texts in bytes.
const maxWeight, partWeight = 2 << 20, 16

// lightFunction is an error for a value that is too heavy. Policies can't call it themselves.
var lightFunction = &ast.Builtin{
	Name: "internal.corral_light",
	Decl: types.NewFunction(types.Args(types.A), nil),
}

func init() {
	ast.RegisterBuiltin(lightFunction)
	topdown.RegisterBuiltinFunc(lightFunction.Name, func(_ topdown.BuiltinContext, operands []*ast.Term, result func(*ast.Term) error) error {
		if isHeavy(operands[0].Value) {
			return errHeavy
		}
		return result(nil)
	})
}

var errHeavy = fmt.Errorf("a value has more than %d parts: gather less, or count instead", maxWeight/partWeight)

func isHeavy(v ast.Value) bool { return weigh(v, partWeight, maxWeight) < 0 }

// weigh takes the weight of a value, so much for each part and its texts in bytes, off what there
// may be, and ends as soon as nothing is left.
func weigh(v ast.Value, part, rest int) int {
	rest -= part
	if rest < 0 {
		return rest
	}
	stop := func(t *ast.Term) bool {
		rest = weigh(t.Value, part, rest)
		return rest < 0
	}
	switch v := v.(type) {
	case ast.String:
		return rest - len(v)
	case ast.Number:
		return rest - len(v)
	case *ast.Array:
		v.Until(stop)
	case ast.Set:
		v.Until(stop)
	case ast.Object:
		v.Until(func(key, value *ast.Term) bool { return stop(key) || stop(value) })
	}
	return rest
}

// makers are builtins whose result has their operands in it, whole.
var makers = []string{ast.ArrayConcat.Name, ast.ObjectUnion.Name, ast.ObjectUnionN.Name, ast.Or.Name, ast.Union.Name}

// weighValues is a stage of the compiler that adds the calls to all modules but the library's.
func weighValues(c *ast.Compiler) *ast.Error {
	for _, file := range slices.Sorted(maps.Keys(c.Modules)) {
		module := c.Modules[file]
		if strings.HasPrefix(file, libraryPrefix) {
			continue
		}
		if err := checkPatterns(module); err != nil {
			return err
		}
		ast.WalkRules(module, func(rule *ast.Rule) bool {
			ast.WalkClosures(rule, func(closure any) bool {
				switch x := closure.(type) {
				case *ast.ArrayComprehension:
					x.Body = weighed(x.Body, x.Term)
				case *ast.SetComprehension:
					x.Body = weighed(x.Body, x.Term)
				case *ast.ObjectComprehension:
					x.Body = weighed(x.Body, x.Key, x.Value)
				case *ast.Every:
					x.Body = weighed(x.Body)
				case *ast.Not:
					x.Body = weighed(x.Body)
				}
				return false
			})
			rule.Body = weighed(rule.Body, rule.Head.Key, rule.Head.Value)
			return false
		})
	}
	return nil
}

// checkPatterns refuses patterns with a variable on both sides, which would make many values at once.
func checkPatterns(module *ast.Module) (refused *ast.Error) {
	ast.WalkExprs(module, func(expr *ast.Expr) bool {
		if !expr.IsEquality() || refused != nil {
			return false
		}
		left, right := expr.Operand(0), expr.Operand(1)
		if isMade(left) && isMade(right) && len(varsOf(left).Intersect(varsOf(right))) > 0 {
			refused = ast.NewError(ast.CompileErr, expr.Location, "a pattern has the same variable on both sides: take it apart in several steps")
		}
		return false
	})
	return refused
}

// varsOf are the variables that a pattern binds or reads.
func varsOf(t *ast.Term) ast.VarSet {
	visitor := ast.NewVarVisitor().WithParams(ast.VarVisitorParams{SkipClosures: true, SkipRefCallHead: true})
	visitor.Walk(t)
	return visitor.Vars()
}

// weighed adds to a body a call for each value that it makes, and for what it gives.
func weighed(body ast.Body, given ...*ast.Term) ast.Body {
	bodied := make(ast.Body, 0, len(body))
	for i, expr := range body {
		if comprehension := compared(expr); comprehension > 0 {
			// It has no name yet: it is given one.
			name := ast.VarTerm(fmt.Sprintf("__weighed%d__", i))
			named := ast.Equality.Expr(name, expr.Operand(comprehension-1))
			named.Location, named.With, named.Generated = expr.Location, expr.With, true
			bodied.Append(named)
			bodied.Append(lightCall(name, expr.Location))
			expr.Terms.([]*ast.Term)[comprehension] = name
		}
		bodied.Append(expr)
		for _, t := range made(expr) {
			bodied.Append(lightCall(t, expr.Location))
		}
	}
	for _, t := range given {
		if t != nil && isMade(t) {
			bodied.Append(lightCall(t, t.Location))
		}
	}
	return bodied
}

// compared returns which term of an equality is a comprehension that isn't assigned to a variable, or 0.
func compared(expr *ast.Expr) int {
	if !expr.IsEquality() {
		return 0
	}
	for i := 1; i <= 2; i++ {
		_, other := expr.Operand(2 - i).Value.(ast.Var)
		if ast.IsComprehension(expr.Operand(i-1).Value) && (!other || expr.Negated) {
			return i
		}
	}
	return 0
}

func lightCall(t *ast.Term, at *ast.Location) *ast.Expr {
	call := ast.NewExpr([]*ast.Term{ast.NewTerm(lightFunction.Ref()), t})
	call.Location, call.Generated = at, true
	return call
}

// made returns the values that an expression makes of others.
func made(expr *ast.Expr) []*ast.Term {
	terms, ok := expr.Terms.([]*ast.Term)
	if !ok || expr.Negated {
		return nil
	}
	if expr.IsEquality() {
		for i, t := range terms[1:] {
			if other := terms[2-i]; isMade(t) {
				if _, isVar := other.Value.(ast.Var); isVar {
					return []*ast.Term{other}
				}
				return []*ast.Term{t}
			}
		}
		return nil
	}
	if slices.Contains(makers, terms[0].String()) {
		return terms[len(terms)-1:]
	}
	return nil
}

// isMade tells whether a term makes a value of others.
func isMade(t *ast.Term) bool {
	switch v := t.Value.(type) {
	case *ast.ArrayComprehension, *ast.SetComprehension, *ast.ObjectComprehension:
		return true
	case *ast.Array, ast.Set, ast.Object:
		return !v.IsGround()
	}
	return false
}

// scales weighs the values of rules as they are cached, and ends the evaluation at one that is too heavy.
type scales struct {
	topdown.VirtualCache
	cancel topdown.Cancel
	heavy  ast.Ref
}

// Put caches the value of a rule.
func (s *scales) Put(ref ast.Ref, value *ast.Term) {
	if value != nil && s.heavy == nil && isHeavy(value.Value) {
		s.heavy = ref
		s.cancel.Cancel()
	}
	s.VirtualCache.Put(ref, value)
}

// errorOf tells of the rule that was too heavy.
func (s *scales) errorOf(err error) error {
	if s.heavy == nil {
		return err
	}
	return fmt.Errorf("%s: %w", clean(s.heavy.String()), errHeavy)
}
