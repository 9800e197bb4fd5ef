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

// callCeiling is corral.ceiling(ceiling, pool, usage): what an element of spec.library.ceilings leaves to
// input.pool of what input.usage tells. It is an object:
//
//	most     that the group of the pool may have
//	granted  to the other pools of the group
//	left     to the pool; it may be more than the pool declares, as it bounds what others raise that to
//
// There is none for a ceiling by a label that the pool doesn't have. OPA's own functions would do, at ten times the cost.
//
// Why the sum of what is granted never exceeds a ceiling: a pool's max becomes the ceiling minus a claim for each
// other pool of the group, and no claim is less than what that pool was granted. So a pool that is granted more than it
// had gets no more than what the others leave, and the sum is within the ceiling after that grant. A pool that may have
// less than it was granted keeps at most that: a runner with a job isn't ended. Then the sum doesn't grow. It begins at
// 0, so by induction over the grants it is never above the ceiling, in whatever order pools are asked, as long as each
// grant is recorded before the next pool is asked. When a ceiling is lowered, or first holds, the sum falls towards it.
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

// decode reads a term; one that isn't there is left as it is.
func decode(t *ast.Term, to any) error {
	if t == nil {
		return nil
	}
	if err := ast.As(t.Value, to); err != nil {
		return fmt.Errorf("a ceiling, a pool and their usage are as input has them: %w", err)
	}
	return nil
}

// sharing returns the group in which a pool shares a ceiling, and what that group may have. A pool without the label shares none.
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

// claimants are the other pools of a group.
type claimants struct {
	granted, pools int64
	// wanting is how many of them want runners, and upTo what they claim if each is kept at most a part of what it wants.
	wanting func() int64
	upTo    func(part int64) Part
}

// leftBy is what a ceiling leaves to a pool of what the others have and want. It may be negative.
func leftBy(share v1alpha1.CeilingShare, most, declared int64, others claimants) int64 {
	left := most - others.granted
	if share == v1alpha1.ShareFirstCome {
		return left
	}
	return fair(left, most, declared, others)
}

// fair is what others leave if what they want is kept for them, up to an equal part for each pool that wants any: the
// rest may be borrowed. Beyond its own part, a pool leaves one runner to those that have less than theirs. A pool
// that may have none isn't given jobs by GitHub, so it could never show that it wants some: with that one it can, and
// then gets more of its part, as those that borrowed it finish jobs. Where more pools want runners than there are, a
// part is less than one, and it is whoever asks first.
//
// If the pool declares no more than an equal part if all wanted any, and the others leave it that, what they want does not matter.
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

// claimants are the pools of a group as rules are told of it: by parts, or else by members. It says if they are not known.
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

// partOf is what members claim.
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

// equalPart is the part of a pool when so many of the others want runners. One is kept for those that want none,
// if there is more than one for each that wants some.
func equalPart(most, others, wanting int64) int64 {
	if others > wanting && most > wanting+1 {
		return (most - 1) / (wanting + 1)
	}
	return most / (wanting + 1)
}

func oneToSpare(rest, part int64) int64 { return max(rest-1, min(rest, part)) }

// within returns a property of an object; nil if it has none, or isn't an object.
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
