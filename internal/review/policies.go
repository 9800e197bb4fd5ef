// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"maps"
	"slices"
)

// comparePolicies tells which policies change, and which pools only they move.
func (c *comparison) comparePolicies() {
	refs := maps.Clone(c.base.policies)
	maps.Copy(refs, c.head.policies)
	for _, ref := range slices.Sorted(maps.Keys(refs)) {
		if p, changes := c.comparePolicy(ref); changes {
			c.result.Policies = append(c.result.Policies, p)
		}
	}
}

func (c *comparison) comparePolicy(ref string) (PolicyChange, bool) {
	p := PolicyChange{Policy: ref, Change: Changed}
	before, after := c.base.policies[ref], c.head.policies[ref]
	p.Before, p.BaseAt = c.base.stateOf(before)
	p.After, p.HeadAt = c.head.stateOf(after)
	switch {
	case before == nil:
		p.Change = Added
	case after == nil:
		p.Change = Deleted
	default:
		p.What = c.whatChanged(before, after)
	}
	for _, pair := range c.pairs {
		if pair.shown.Change == Moved && (binds(before, pair.base) || binds(after, pair.head)) {
			p.Moved = append(p.Moved, pair.name())
		}
	}
	return p, p.Change != Changed || len(p.What) > 0
}

// stateOf is a policy on a side; nil if it has none.
func (s *side) stateOf(p *Policy) (*PolicyState, *Place) {
	if p == nil {
		return nil, nil
	}
	state := &PolicyState{Mode: p.Mode(), Digest: p.Digest()}
	for _, pool := range s.order {
		if binds(p, pool) {
			state.Pools++
		}
	}
	at := p.At
	return state, &at
}

func binds(p *Policy, on *pool) bool { return p != nil && on != nil && p.Binds(on.input) }

func (c *comparison) whatChanged(before, after *Policy) []string {
	var what []string
	if before.Digest() != after.Digest() {
		what = append(what, "rules")
	}
	if before.Mode() != after.Mode() {
		what = append(what, "mode")
	}
	bound := func(p *pair) bool {
		return p.base != nil && p.head != nil && before.Binds(p.head.input) != after.Binds(p.head.input)
	}
	if slices.ContainsFunc(c.pairs, bound) {
		what = append(what, "selector")
	}
	return what
}
