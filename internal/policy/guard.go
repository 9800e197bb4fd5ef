// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import "context"

// Guard bounds the evaluation of one policy. It returns the context to evaluate under and a function to
// call after it.
type Guard func(context.Context) (context.Context, context.CancelFunc)

type guardKey struct{}

// WithGuard returns a context under which each policy is asked within the guard's bounds. An
// evaluation that the guard ends counts as a time-out of the policy.
func WithGuard(ctx context.Context, guard Guard) context.Context {
	return context.WithValue(ctx, guardKey{}, guard)
}

// guarded begins the evaluation of one policy.
func guarded(ctx context.Context) (context.Context, context.CancelFunc) {
	if guard, ok := ctx.Value(guardKey{}).(Guard); ok {
		return guard(ctx)
	}
	return ctx, func() {}
}
