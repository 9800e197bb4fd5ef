// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"io/fs"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/worker"
)

// Compiler compiles definitions.
type Compiler interface {
	Compile(ctx context.Context, fsys fs.FS, options compile.Options) (compile.Result, error)
}

// Evaluator loads, evaluates and tests policies that users wrote.
type Evaluator interface {
	policy.Asker
	Load(ctx context.Context, source policy.Source, isCurrent func() bool) (policy.Facts, []v1alpha1.Diagnostic, error)
	Test(ctx context.Context, source policy.Source, options policy.TestOptions) (policy.TestReport, []v1alpha1.Diagnostic, error)
}

// engines replaces the child processes that compile definitions and evaluate policies.
type engines struct {
	compiler  Compiler
	evaluator Evaluator
}

type enginesKey struct{}

// WithEngines returns a context in which commands use the given compiler and evaluator instead of child processes.
func WithEngines(ctx context.Context, c Compiler, e Evaluator) context.Context {
	return context.WithValue(ctx, enginesKey{}, engines{c, e})
}

// newCompiler returns the compiler of the context, or else a compiler that starts a child process. The child has the limits
// of the controller's compiler, except that it has less time, because a user waits for the result, and Argo CD stops a
// plugin after 90 s.
func newCompiler(ctx context.Context) Compiler {
	if given, ok := ctx.Value(enginesKey{}).(engines); ok {
		return given.compiler
	}
	limits := worker.DefaultLimits()
	limits.Wall = time.Minute
	return worker.NewCompiler(1, limits)
}
