// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/kube"
)

// Bounds of spec.dependsOn[].readyExpr.
const (
	maxExpression = 4096 // bytes
	// maxExpressionCost is in units of cel-go, a tenth of what the API server lets one rule of a CRD cost.
	maxExpressionCost = 1_000_000
	// expressionCheck is after how many iterations of a comprehension the deadline is looked at, as in the API server.
	expressionCheck = 100
	// expressionTime is the deadline of one evaluation.
	expressionTime = time.Second
)

// unreadyByExpression asks an expression of the user's, as Flux does: self is the source, dep what it depends on.
func (x *run) unreadyByExpression(ctx context.Context, field, expression string, on *v1alpha1.PoolSource) (string, error) {
	program, err := compileExpression(expression)
	if err != nil {
		return "", kube.Stall(v1alpha1.InvalidSpecReason, "%s: %w", field, err)
	}
	self, err := runtime.DefaultUnstructuredConverter.ToUnstructured(x.source)
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

// compileExpression compiles CEL in the environment of Flux's readyExpr. It must yield a bool.
func compileExpression(expression string) (cel.Program, error) {
	if len(expression) > maxExpression {
		return nil, fmt.Errorf("the expression is longer than %d bytes", maxExpression)
	}
	object := cel.ObjectType("google.protobuf.Struct")
	env, err := cel.NewEnv(
		cel.HomogeneousAggregateLiterals(), cel.EagerlyValidateDeclarations(true), cel.DefaultUTCTimeZone(true),
		cel.CrossTypeNumericComparisons(true), cel.OptionalTypes(), ext.Strings(), ext.Sets(), ext.Encoders(),
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
