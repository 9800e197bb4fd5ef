// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Set holds policies. It never changes.
type Set struct{ policies []*Policy }

// NewSet returns a Set of policies, in the order of their names.
func NewSet(policies ...*Policy) *Set { return &Set{policies: policies} }

// For returns the policies that bind the pool. It may be kept while the Set and the pool are the same.
func (s *Set) For(Pool) *Bound { return &Bound{} }

// Bound are the policies that bind one pool.
type Bound struct{}

// Needs are the costly parts of an input that scaling rules read.
type Needs struct {
	// All, Namespace and Connection are true when a rule reads that group of input.usage.
	All, Namespace, Connection bool
	// Labels are the labels whose groups a rule reads, sorted; AnyLabel is true when that isn't known.
	Labels   []string
	AnyLabel bool
	// Members is true when a rule reads the members of a group.
	Members bool
}

// Usage is true when a rule reads input.usage at all.
func (n Needs) Usage() bool {
	return n.All || n.Namespace || n.Connection || n.AnyLabel || len(n.Labels) > 0
}

// Digest identifies the policies, those audited included; empty if there are none.
func (b *Bound) Digest() string { return "" }

// Needs tells what the scaling rules read.
func (b *Bound) Needs() Needs { return Needs{} }

// Scaling asks what limits hold. The deadline of each policy's evaluation comes with ctx.
func (b *Bound) Scaling(_ context.Context, in ScalingInput) Scaling {
	return Scaling{Scale: in.Pool.Scale}
}

// Template asks whether a pod may run.
func (b *Bound) Template(context.Context, TemplateInput) Template { return Template{} }

// Update asks how a change may roll out.
func (b *Bound) Update(_ context.Context, in UpdateInput) Update {
	return Update{
		Strategy: v1alpha1.UpdateStrategy(in.Change.Strategy),
		MaxSurge: in.Change.MaxSurge, MaxUnavailable: in.Change.MaxUnavailable, Canary: in.Change.Canary,
	}
}
