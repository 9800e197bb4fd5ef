// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package review

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/compile"
	"github.com/corral-dev/corral/internal/policy"
	"github.com/corral-dev/corral/internal/wording"
)

// comparePolicies reports which policies change, and which pools are affected only by such changes.
func (c *comparison) comparePolicies() {
	for _, ref := range names(c.base.policies, c.head.policies) {
		if p, changes := c.comparePolicy(ref); changes {
			c.result.Policies = append(c.result.Policies, p)
		}
		c.warnOfPolicy(ref)
	}
	c.warnOfLabels()
}

// comparePolicy returns how a policy changes, and the pools that the change affects; false if the policy does not
// change.
func (c *comparison) comparePolicy(ref string) (PolicyChange, bool) {
	before, after := c.base.policies[ref], c.head.policies[ref]
	p := PolicyChange{Policy: ref, Change: changeOf(before, after)}
	p.Before, p.BaseAt = c.base.stateOf(before)
	p.After, p.HeadAt = c.head.stateOf(after)
	if p.Change == Changed {
		fields := specDiff(c.base.declared[ref], c.head.declared[ref])
		p.What = whatChanged(before, after, fields)
		p.Fields, p.MoreFields = fields.fields()
	}
	for _, pair := range c.pairs {
		if pair.shown.Change == Moved && (binds(before, pair.base) || binds(after, pair.head)) {
			p.Moved = append(p.Moved, pair.name())
		}
	}
	return p, p.Change != Changed || len(p.What) > 0
}

// stateOf returns the state and the place of a policy on a side; nil if the side does not have the policy.
func (s *side) stateOf(p *Policy) (*PolicyState, *Place) {
	if p == nil {
		return nil, nil
	}
	bound := s.named(func(on *pool) bool { return binds(p, on) })
	return &PolicyState{Mode: p.Mode(), Digest: p.Digest(), Pools: len(bound)}, new(p.At)
}

func binds(p *Policy, on *pool) bool { return p != nil && on != nil && p.Binds(on.input) }

// specDiff compares two specs. Fields have no classes, and their paths begin below spec. Modules are left out, because they are
// too large to list. There are no differences if either object is nil.
func specDiff(was, is *compile.Object) *differences {
	if was == nil || is == nil {
		was, is = &compile.Object{}, &compile.Object{}
	}
	d := diff(was, is, func(path string) Class {
		if isWithin(path, "metadata") || isWithin(path, "spec.modules") {
			return unlisted
		}
		return ""
	})
	d.below = "spec."
	return d
}

// whatChanged returns the names of the parts in which two policies differ, even if the difference affects no pool.
func whatChanged(before, after *Policy, fields *differences) []string {
	touches := func(part string) bool { return fields.touches("spec." + part) }
	differs := map[string]bool{
		"rules": before.Digest() != after.Digest() && !touches("data") && !touches("parameters") || touches("modules") || touches("library"),
		"data":  touches("data"), "parameters": touches("parameters"), "mode": before.Mode() != after.Mode(), "selector": touches("selector"),
		"rules in ConfigMaps": touches("modulesFrom"),
	}
	all := []string{"rules", "data", "parameters", "mode", "selector", "rules in ConfigMaps"}
	return slices.DeleteFunc(all, func(what string) bool { return !differs[what] })
}

func isAudited(p *Policy) bool { return p.Mode() == v1alpha1.PolicyAudit }

func isEnforced(p *Policy, on *pool) bool { return binds(p, on) && !isAudited(p) }

// warnOfPolicy warns if a policy of the base was enforced for pools, and the head's policy is not enforced for pools
// with the same labels.
func (c *comparison) warnOfPolicy(ref string) {
	before, after := c.base.policies[ref], c.head.policies[ref]
	var freed []string
	for _, p := range c.pairs {
		if p.head != nil && isEnforced(before, p.base) && !isEnforced(after, p.base) {
			freed = append(freed, p.name())
		}
	}
	c.warnOfFreed(ref+" "+effects.Phrase("frees", after), "it", ref, freed)
}

// warnOfLabels warns about pools that lost labels and whose limits at the head would be stricter with the previous
// labels.
func (c *comparison) warnOfLabels() {
	const onLabels = "limits that depend on labels"
	freed := map[string][]string{}
	for _, p := range c.pairs {
		gone := p.goneLabels()
		if gone == "" {
			continue
		}
		labelled := *p.head
		labelled.input.Labels = p.base.input.Labels
		labelled.bound = c.head.set.For(labelled.input)
		if a := c.head.scaling(c.ctx, &labelled, c.in.At); len(a.answer.Failures) == 0 && isLooser(p.after.limits.Effective, a.answer.Scale) {
			freed[gone] = append(freed[gone], p.name())
		}
	}
	for _, gone := range slices.Sorted(maps.Keys(freed)) {
		c.warnOfFreed("Without "+gone, onLabels, onLabels, freed[gone])
	}
}

// goneLabels returns the labels of the base's pool that the head's pool does not have, or has with another value, as
// NAME=VALUE,NAME=VALUE.
func (p *pair) goneLabels() string {
	if p.base == nil || p.head == nil {
		return ""
	}
	gone := maps.Clone(p.base.Labels)
	maps.DeleteFunc(gone, func(name, value string) bool { now, has := p.head.Labels[name]; return has && now == value })
	return labels.Set(gone).String()
}

// isLooser reports whether the effective limits allow more runners, or guarantee fewer, than other limits. It returns
// false if the effective limits are unknown.
func isLooser(now *policy.Scale, than policy.Scale) bool {
	return now != nil && (now.Max > than.Max || now.Min < than.Min)
}

// warnOfFreed adds a warning and a consequence for pools to which a policy or limits no longer apply.
func (c *comparison) warnOfFreed(what, of, name string, pools []string) {
	if len(pools) == 0 {
		return
	}
	c.result.freed = append(c.result.freed, Consequence{
		Class: "Freed", Text: "freed of " + name, Count: len(pools), Of: c.result.Head.Pools, Pools: pools[:min(len(pools), maxNamed)],
	})
	free := Agreeing(len(pools), "pool", "is", "are")
	c.result.Warnings = append(c.result.Warnings, fmt.Sprintf("%s: %s free of %s: %s.", what, free, of, wording.List(pools, maxNamed)))
}
