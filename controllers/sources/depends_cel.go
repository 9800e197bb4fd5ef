// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/overloads"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
)

// Bounds of spec.dependsOn[].readyExpr.
const (
	maxExpression = 4096 // bytes
	// maxExpressionCost is in units of cel-go.
	maxExpressionCost = 10_000
	// expressionCheck is after how many iterations of a comprehension the deadline is looked at.
	expressionCheck = 10
	// expressionTime is the deadline of one evaluation.
	expressionTime = time.Second
)

// calls are what an expression may call. Cost and deadline are looked at between calls and not within one, so that each has to be
// cheap: nothing is offered that makes larger values of those there are, searches by patterns, or grows while it is parsed.
var calls = sets.New(
	operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.Conditional,
	operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals,
	operators.Subtract, operators.Negate, operators.In, operators.Index,
	operators.Has, operators.All, operators.Exists, operators.ExistsOne, operators.Filter,
	overloads.Size, overloads.Contains, overloads.StartsWith, overloads.EndsWith,
	overloads.TypeConvertString, overloads.TypeConvertInt, overloads.TypeConvertTimestamp, overloads.TypeConvertDuration,
)

// unreadyByExpression asks an expression of the user's, as Flux does: self is the source, dep what it depends on.
func (p *pass) unreadyByExpression(ctx context.Context, field, expression string, on *v1alpha1.PoolSource) (string, error) {
	program, err := compileExpression(expression)
	if err != nil {
		return "", kube.Stall(v1alpha1.InvalidSpecReason, "%s: %w", field, err)
	}
	self, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p.source)
	if err != nil {
		return "", fmt.Errorf("encoding the source: %w", err)
	}
	dep, err := runtime.DefaultUnstructuredConverter.ToUnstructured(on)
	if err != nil {
		return "", fmt.Errorf("encoding what the source depends on: %w", err)
	}
	limited, cancel := context.WithTimeout(ctx, expressionTime)
	defer cancel()
	value, _, err := program.ContextEval(limited, map[string]any{"self": self, "dep": dep})
	if err != nil {
		return fmt.Sprintf("can't be judged: %s: %v", field, err), nil
	}
	if ready, ok := value.Value().(bool); !ok || !ready {
		return "is not ready: " + field + " is false", nil
	}
	return "", nil
}

// compileExpression compiles a part of standard CEL, with the variables of Flux's readyExpr. It must yield a bool.
func compileExpression(expression string) (cel.Program, error) {
	if len(expression) > maxExpression {
		return nil, fmt.Errorf("the expression is longer than %d bytes", maxExpression)
	}
	if err := compares(expression); err != nil {
		return nil, err
	}
	object := cel.ObjectType("google.protobuf.Struct")
	env, err := cel.NewEnv(
		cel.HomogeneousAggregateLiterals(), cel.EagerlyValidateDeclarations(true), cel.DefaultUTCTimeZone(true),
		cel.CrossTypeNumericComparisons(true),
		cel.Variable("self", object), cel.Variable("dep", object),
	)
	if err != nil {
		return nil, fmt.Errorf("making the environment: %w", err)
	}
	tree, issues := env.Compile(expression)
	if issues.Err() != nil {
		return nil, issues.Err()
	}
	if tree.OutputType() != cel.BoolType {
		return nil, errors.New("the expression must yield a bool, and yields " + tree.OutputType().String())
	}
	return env.Program(tree, cel.EvalOptions(cel.OptOptimize), cel.InterruptCheckFrequency(expressionCheck), cel.CostLimit(maxExpressionCost))
}

// compares refuses what does more than compare. It looks at the expression as it is written, before macros.
func compares(expression string) error {
	env, err := cel.NewCustomEnv()
	if err != nil {
		return fmt.Errorf("making the environment: %w", err)
	}
	tree, issues := env.Parse(expression)
	if issues.Err() != nil {
		return issues.Err()
	}
	ast.PreOrderVisit(tree.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.CallKind:
			if name := e.AsCall().FunctionName(); !calls.Has(name) {
				err = fmt.Errorf("%q is not offered: an expression compares values that are there", strings.Trim(name, "_"))
			}
		case ast.ListKind:
			if slices.ContainsFunc(e.AsList().Elements(), func(element ast.Expr) bool { return element.Kind() != ast.LiteralKind }) {
				err = errors.New("a list may hold only numbers and strings: an expression compares values that are there")
			}
		case ast.MapKind, ast.StructKind:
			err = errors.New("maps and messages can't be made: an expression compares values that are there")
		}
	}))
	return err
}
