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

// Set is an immutable set of policies.
type Set struct {
	// by contains the policies by kind and namespace. Each list is sorted by name.
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

// Replace returns a Set in which now replaces before, a policy of the same kind and namespace. Either may be nil. It
// copies only the policies of that namespace.
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

// For returns the policies that bind the pool. The result can be cached while the Set and the pool do not change.
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
	known := map[Domain]bool{}
	add := func(namespace string, rules bool, groups []GroupKey) {
		for _, g := range groups {
			if d := (Domain{namespace, rules, g}); !known[d] {
				known[d] = true
				b.domains = append(b.domains, d)
			}
		}
	}
	for _, p := range b.policies {
		b.needs = b.needs.and(p.facts.Needs)
		add(p.source.Namespace, true, p.facts.Needs.OfRules().Groups(pool))
		add(p.source.Namespace, false, Needs{Ceilings: p.facts.Needs.Ceilings}.Groups(pool))
	}
	return b
}

// Domain is a set of pools that compete for grants, because policies of one namespace limit each of them by the usage
// of the same group.
type Domain struct {
	// Namespace is the namespace of the policies; "" for ClusterRunnerPolicies.
	Namespace string
	// Rules is true if user-written rules read the usage, and false for ceilings of the library.
	Rules bool
	// Group is the group whose usage the policies read. It contains the pool.
	Group GroupKey
}

// Bound holds the policies that bind one pool. It is safe for concurrent use.
type Bound struct {
	policies []*Policy
	digest   string
	needs    Needs
	domains  []Domain
}

// Domains returns the domains of the pool. The domains of ClusterRunnerPolicies come first.
func (b *Bound) Domains() []Domain { return b.domains }

// Digest identifies the policies, including audited ones; empty if there are none.
func (b *Bound) Digest() string { return b.digest }

// Needs returns the inputs that the scaling rules read.
func (b *Bound) Needs() Needs { return b.needs }

// Policies returns the policies that bind the pool: cluster policies first, each kind sorted by name. A nil Bound has
// none.
func (b *Bound) Policies() []*Policy {
	if b == nil {
		return nil
	}
	return slices.Clone(b.policies)
}

// mayDecide reports whether a policy takes part in a decision. A policy that is not loaded counts for every decision,
// because its rules are unknown.
func mayDecide(p *Policy, decision string) bool {
	return !p.isLoaded() || slices.Contains(p.facts.Decisions, decision)
}

// isAsked reports whether any policy takes part in a decision.
func (b *Bound) isAsked(decision string) bool {
	return slices.ContainsFunc(b.policies, func(p *Policy) bool { return mayDecide(p, decision) })
}

// isAudited reports whether the mode is Audit: Corral only reports what the policy would change.
func isAudited(p *Policy) bool { return p.Mode() == v1alpha1.PolicyAudit }
