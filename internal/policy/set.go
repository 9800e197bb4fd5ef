// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// Set holds policies. It never changes.
type Set struct {
	// by kind and namespace, sorted.
	by map[[2]string][]*Policy
}

// NewSet returns a Set of policies.
func NewSet(policies ...*Policy) *Set {
	s := &Set{map[[2]string][]*Policy{}}
	for _, p := range policies {
		s = s.Replace(nil, p)
	}
	return s
}

// Replace returns a Set with a policy in place of another of its namespace, at the cost of that namespace's; either may be nil.
func (s *Set) Replace(before, now *Policy) *Set {
	source := cmp.Or(now, before).source
	key := [2]string{source.Kind, source.Namespace}
	list := slices.DeleteFunc(slices.Clone(s.by[key]), func(p *Policy) bool { return p == before })
	if now != nil {
		at, _ := slices.BinarySearchFunc(list, now, func(a, b *Policy) int {
			return cmp.Or(cmp.Compare(a.Ref(), b.Ref()), cmp.Compare(a.Digest(), b.Digest()), cmp.Compare(a.Mode(), b.Mode()))
		})
		list = slices.Insert(list, at, now)
	}
	next := &Set{maps.Clone(s.by)}
	if next.by[key] = list; len(list) == 0 {
		delete(next.by, key)
	}
	return next
}

// For returns the policies that bind the pool. It may be kept while the Set and the pool are the same.
func (s *Set) For(pool Pool) *Bound {
	b := &Bound{}
	h := newHash()
	for _, list := range [][]*Policy{s.by[[2]string{KindClusterRunnerPolicy, ""}], s.by[[2]string{KindRunnerPolicy, pool.Namespace}]} {
		for _, p := range list {
			if p.Binds(pool) {
				b.policies = append(b.policies, p)
				h.text(p.Ref(), string(p.Mode()), p.Digest())
			}
		}
	}
	if len(b.policies) > 0 {
		b.digest = fmt.Sprintf("sha256:%x", h.sum())
	}
	for _, p := range b.policies {
		b.needs = b.needs.and(p.facts.Needs)
		b.addDomains(p.source.Namespace, true, p.facts.Needs.OfRules().Groups(pool))
		b.addDomains(p.source.Namespace, false, Needs{Ceilings: p.facts.Needs.Ceilings}.Groups(pool))
	}
	return b
}

func (b *Bound) addDomains(namespace string, rules bool, groups []GroupKey) {
	for _, g := range groups {
		if d := (Domain{namespace, rules, g}); !slices.Contains(b.domains, d) {
			b.domains = append(b.domains, d)
		}
	}
}

// Domain groups the pools whose grants may exclude each other: policies of one namespace limit them by what a group uses.
type Domain struct {
	// Namespace of the policies; "" for ClusterRunnerPolicies.
	Namespace string
	// Rules is true if rules that somebody wrote read what others use, and false for ceilings of the library.
	Rules bool
	// Group that they read, in which the pool is.
	Group GroupKey
}

// Bound are the policies that bind one pool. Several may ask it at once.
type Bound struct {
	policies []*Policy
	digest   string
	needs    Needs
	domains  []Domain
}

// Domains returns the domains that the pool is in, the cluster's first.
func (b *Bound) Domains() []Domain { return b.domains }

// Digest identifies the policies, those audited included; empty if there are none.
func (b *Bound) Digest() string { return b.digest }

// Needs tells what the scaling rules read.
func (b *Bound) Needs() Needs { return b.needs }

// Policies that bind the pool: those of the cluster first, each kind by name. None of nil.
func (b *Bound) Policies() []*Policy {
	if b == nil {
		return nil
	}
	return slices.Clone(b.policies)
}

// mayDecide reports whether a policy has a say in a decision; one that isn't loaded may have.
func mayDecide(p *Policy, decision string) bool {
	return !p.isLoaded() || slices.Contains(p.facts.Decisions, decision)
}

// isAsked tells whether any policy has a say in a decision.
func (b *Bound) isAsked(decision string) bool {
	return slices.ContainsFunc(b.policies, func(p *Policy) bool { return mayDecide(p, decision) })
}

// isAudited tells whether a policy only tells what it would change.
func isAudited(p *Policy) bool { return p.Mode() == v1alpha1.PolicyAudit }
