// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"fmt"
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// callCeiling implements corral.ceiling(ceiling, pool, usage): the number of runners that an element of
// spec.library.ceilings leaves to input.pool, given input.usage. It returns an object:
//
//	most     the ceiling of the pool's group
//	granted  the runners granted to the other pools of the group
//	left     the runners left to the pool; can exceed the pool's own max, because other rules may raise that
//
// The result is undefined for a ceiling by a label that the pool does not have. The same rule with OPA's own functions
// would take ten times as long.
//
// The sum of the grants under a ceiling never exceeds it, for this reason: A pool's max becomes the ceiling minus a
// claim for each other pool of the group, and no claim is less than that pool's grant. So if a pool's grant grows, it
// grows at most to what the grants of the others leave, and the sum is within the ceiling afterwards. If a pool's limit
// falls below its grant, the pool keeps at most its grant, because Corral does not delete runners that have a job; the
// sum does not grow. The sum begins at 0, so by induction over the grants it never exceeds the ceiling, in whatever
// order pools are evaluated, if each grant is recorded before the next pool is evaluated. If a ceiling is lowered or
// introduced, the sum falls until it is within the ceiling.
func callCeiling(_ topdown.BuiltinContext, operands []*ast.Term, give func(*ast.Term) error) error {
	var c v1alpha1.Ceiling
	var p Pool
	of := func(name string) *ast.Term { return within(operands[1], ast.StringTerm(name)) }
	err := errors.Join(decode(operands[0], &c), decode(of("namespace"), &p.Namespace), decode(of("connection"), &p.Connection),
		decode(of("labels"), &p.Labels), decode(of("scale"), &p.Scale))
	key, most, ok := sharing(c, p)
	if err != nil || !ok {
		return err
	}
	others, isKnown := Group{}, true
	at := within(operands[2], ast.StringTerm(key.by))
	if key.by == byLabel {
		at = within(at, ast.StringTerm(key.label))
	}
	err = decode(at, &others)
	left := leftBy(c.Share, most, int64(p.Scale.Max), others.claimants(&isKnown))
	if !isKnown {
		err = errors.New("members are missing, or not all pools of the group: a fair ceiling takes what each was granted and wants")
	}
	if err != nil {
		return err
	}
	return give(ast.NewTerm(ast.NewObject(
		[2]*ast.Term{ast.InternedTerm("most"), ast.InternedTerm(int(most))},
		[2]*ast.Term{ast.InternedTerm("granted"), ast.InternedTerm(int(others.Granted))},
		[2]*ast.Term{ast.InternedTerm("left"), ast.InternedTerm(int(max(0, left)))},
	)))
}

// decode reads a term. It leaves the target unchanged if the term is nil.
func decode(t *ast.Term, to any) error {
	if t == nil {
		return nil
	}
	if err := ast.As(t.Value, to); err != nil {
		return fmt.Errorf("a ceiling, a pool and their usage are as input has them: %w", err)
	}
	return nil
}

// sharing returns the group of pools that share a ceiling with a pool, and the group's maximum. It returns false if the
// ceiling is by a label that the pool does not have.
func sharing(c v1alpha1.Ceiling, p Pool) (g GroupKey, most int64, ok bool) {
	own := ""
	switch c.By {
	case v1alpha1.CeilingNamespace:
		g, own = GroupKey{by: byNamespace, value: p.Namespace}, p.Namespace
	case v1alpha1.CeilingConnection:
		g, own = connectionGroup(p), p.Connection
	case v1alpha1.CeilingLabel:
		if own, ok = p.Labels[c.LabelKey]; !ok {
			return g, 0, false
		}
		g = GroupKey{byLabel, c.LabelKey, own}
	default:
		g = GroupKey{by: byAll}
	}
	if special, ok := c.Overrides[own]; ok {
		return g, int64(special), true
	}
	return g, int64(c.Max), true
}

// claimants describes the other pools of a group.
type claimants struct {
	granted, pools int64
	// wanting returns how many of the pools want runners. upTo returns the sum of their claims if each claims at most the
	// given part, or its grant if that is larger.
	wanting func() int64
	upTo    func(part int64) Part
}

// leftBy returns the number of runners that a ceiling leaves to a pool. The result can be negative.
func leftBy(share v1alpha1.CeilingShare, most, declared int64, others claimants) int64 {
	left := most - others.granted
	if share == v1alpha1.ShareFirstCome {
		return left
	}
	return fair(left, most, declared, others)
}

// fair reserves for each other pool the runners that it wants, up to an equal part of the ceiling for each pool that
// wants runners. The given pool may borrow the rest. If it takes more than its own part, it leaves one runner to the
// pools that have less than theirs: GitHub assigns no jobs to a pool with a max of 0, so such a pool could never show
// that it wants runners. With that one runner it can, and it gets more of its part as the borrowers finish jobs. If
// more pools want runners than the ceiling allows, a part is less than one runner, and the first pool that is evaluated
// gets one.
//
// If the pool declares no more than the part that it would get if all pools wanted runners, and the grants of the
// others leave that many runners, fair ignores what the others want.
func fair(left, most, declared int64, others claimants) int64 {
	if declared*(others.pools+1) <= most && declared <= left {
		return left
	}
	part := equalPart(most, others.pools, others.wanting())
	claims := others.upTo(part)
	rest := most - int64(claims.Claimed)
	if claims.Below > 0 {
		return oneToSpare(rest, part)
	}
	return rest
}

// claimants describes the pools of a group in the input. upTo uses the group's Parts, or its Members if Parts does not
// contain the part. It then sets isKnown to false if not all members are in the input.
func (g *Group) claimants(isKnown *bool) claimants {
	return claimants{
		granted: int64(g.Granted), pools: int64(g.Pools),
		wanting: func() int64 { return int64(max(g.Wanting, GroupOf(g.Members).Wanting)) },
		upTo: func(part int64) Part {
			if i := slices.IndexFunc(g.Parts, func(p Part) bool { return int64(p.Part) == part }); i >= 0 {
				return g.Parts[i]
			}
			*isKnown = len(g.Members) == int(g.Pools)
			return partOf(g.Members, part)
		},
	}
}

// partOf sums the claims of members if each claims at most part, or its grant if that is larger.
func partOf(members []Member, part int64) Part {
	claimed, below := int64(0), int64(0)
	for _, m := range members {
		claim := m.claim(part)
		if claimed += claim; claim < part {
			below++
		}
	}
	return Part{Part: clamp(part), Claimed: clamp(claimed), Below: clamp(below)}
}

// equalPart returns the equal part of each pool that wants runners: the given pool, and wanting of the others. If some
// of the others want none, and there is more than one runner for each pool that wants some, it sets one runner aside.
func equalPart(most, others, wanting int64) int64 {
	if others > wanting && most > wanting+1 {
		return (most - 1) / (wanting + 1)
	}
	return most / (wanting + 1)
}

func oneToSpare(rest, part int64) int64 { return max(rest-1, min(rest, part)) }

// within returns a property of an object, or nil.
func within(t, name *ast.Term) *ast.Term {
	if t == nil || name == nil {
		return nil
	}
	o, ok := t.Value.(ast.Object)
	if !ok {
		return nil
	}
	return o.Get(name)
}
