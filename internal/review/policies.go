// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/wording"
)

// comparePolicies tells which policies change, and which pools only they move.
func (c *comparison) comparePolicies() {
	for _, ref := range names(c.base.policies, c.head.policies) {
		if p, changes := c.comparePolicy(ref); changes {
			c.result.Policies = append(c.result.Policies, p)
		}
		c.warnOfPolicy(ref)
	}
	c.warnOfLabels()
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
		p.Fields = specFields(c.base.declared[ref], c.head.declared[ref])
		p.What = whatChanged(before, after, p.Fields)
		p.Fields = slices.DeleteFunc(p.Fields, func(f FieldChange) bool { return isWithin(f.Path, "modules") })
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
	return state, new(p.At)
}

func binds(p *Policy, on *pool) bool { return p != nil && on != nil && p.Binds(on.input) }

// specFields are what differs of two specs that have no classes; none if either isn't among the objects.
func specFields(was, is *compile.Object) []FieldChange {
	if was == nil || is == nil {
		return nil
	}
	fields := diff(was, is, func(string) Class { return "" })
	for i := range fields {
		fields[i].Path = strings.TrimPrefix(fields[i].Path, "spec.")
	}
	return slices.DeleteFunc(fields, func(f FieldChange) bool { return isWithin(f.Path, "metadata") })
}

// whatChanged names what two policies differ in: one that moves no pool today may tomorrow.
func whatChanged(before, after *Policy, fields []FieldChange) []string {
	var what []string
	touches := (&Pool{Fields: fields}).touches
	rules := before.Digest() != after.Digest() && !touches("data") && !touches("parameters") || touches("modules") || touches("library")
	for _, part := range []struct {
		differs bool
		name    string
	}{
		{rules, "rules"}, {touches("data"), "data"}, {touches("parameters"), "parameters"}, {before.Mode() != after.Mode(), "mode"},
		{touches("selector"), "selector"}, {touches("modulesFrom"), "rules in ConfigMaps"},
	} {
		if part.differs {
			what = append(what, part.name)
		}
	}
	return what
}

func isAudited(p *Policy) bool { return p.Mode() == v1alpha1.PolicyAudit }

func isEnforced(p *Policy, on *pool) bool { return binds(p, on) && !isAudited(p) }

// warnOfPolicy warns of a policy that bound pools, and that binds none any more that is labelled so.
func (c *comparison) warnOfPolicy(ref string) {
	before, after := c.base.policies[ref], c.head.policies[ref]
	var freed []string
	for _, p := range c.pairs {
		if p.head != nil && isEnforced(before, p.base) && !isEnforced(after, p.base) {
			freed = append(freed, p.name())
		}
	}
	what := ref + " selects other pools"
	switch {
	case after == nil:
		what = ref + " is gone"
	case isAudited(after):
		what = ref + " is only audited from now on"
	}
	c.warnOfFreed(what, "it", ref, freed)
}

// warnOfLabels warns of labels that go from pools, if limits of the head hang on them.
func (c *comparison) warnOfLabels() {
	const onLabels = "limits that hang on labels"
	freed := map[string][]string{}
	for _, p := range c.pairs {
		gone := p.goneLabels()
		if len(gone) == 0 {
			continue
		}
		labelled := *p.head
		labelled.input.Labels = p.base.input.Labels
		labelled.bound = c.head.set.For(labelled.input)
		if a := c.head.scaling(c.ctx, &labelled, c.in.At); len(a.answer.Failures) == 0 && isLooser(p.after.limits.Effective, a.answer.Scale) {
			labels := strings.Join(gone, ", ")
			freed[labels] = append(freed[labels], p.name())
		}
	}
	for _, labels := range slices.Sorted(maps.Keys(freed)) {
		c.warnOfFreed("Without "+labels, onLabels, onLabels, freed[labels])
	}
}

// goneLabels are the labels that a pool doesn't have any more, as NAME=VALUE.
func (p *pair) goneLabels() []string {
	if p.base == nil || p.head == nil {
		return nil
	}
	var gone []string
	for name, value := range p.base.Labels {
		if now, ok := p.head.Labels[name]; !ok || now != value {
			gone = append(gone, name+"="+value)
		}
	}
	slices.Sort(gone)
	return gone
}

// isLooser says whether numbers in force, if anybody knows them, keep a pool from less than others.
func isLooser(now *policy.Scale, than policy.Scale) bool {
	return now != nil && (now.Max > than.Max || now.Min < than.Min)
}

// warnOfFreed warns of pools that are free of something by a name.
func (c *comparison) warnOfFreed(what, of, name string, pools []string) {
	if len(pools) == 0 {
		return
	}
	c.result.freed = append(c.result.freed, Consequence{Class: "Freed", Text: name, Count: len(pools), Pools: pools[:min(len(pools), maxNamed)]})
	free := Agreeing(len(pools), "pool", "is", "are")
	c.result.Warnings = append(c.result.Warnings, fmt.Sprintf("%s: %s free of %s: %s.", what, free, of, wording.List(pools, maxNamed)))
}
