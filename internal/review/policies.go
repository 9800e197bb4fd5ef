// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"maps"
	"reflect"
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
		p.What = c.whatChanged(ref, before, after)
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

// whatChanged compares what two policies are made of: one that moves no pool today may tomorrow.
func (c *comparison) whatChanged(ref string, before, after *Policy) []string {
	var what []string
	if before.Digest() != after.Digest() {
		what = append(what, "rules")
	}
	if before.Mode() != after.Mode() {
		what = append(what, "mode")
	}
	was, is := c.base.declared[ref], c.head.declared[ref]
	for _, f := range []struct{ field, name string }{{"selector", "selector"}, {"modulesFrom", "rules in ConfigMaps"}} {
		if !reflect.DeepEqual(was[f.field], is[f.field]) {
			what = append(what, f.name)
		}
	}
	return what
}
