// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"cmp"
	"fmt"

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
	c, pool, usage := reader{of: operands[0].Value}, reader{of: operands[1].Value}, reader{of: operands[2].Value}
	own, others, shares := common(&c, &pool, &usage)
	if !shares {
		return cmp.Or(c.err, pool.err, usage.err)
	}
	most := c.number("max")
	if special := within(c.get("overrides"), own); special != nil {
		most = numberOf(special)
	}
	g := groupOf(others)
	left := most - g.granted
	if share := c.get("share"); share == nil || share.Value.Compare(ast.String(v1alpha1.ShareFirstCome)) != 0 {
		left = fair(most, numberOf(within(pool.get("scale"), maxKey)), g)
	}
	if err := cmp.Or(c.err, pool.err, usage.err, g.err); err != nil {
		return err
	}
	return give(ast.NewTerm(ast.NewObject(
		[2]*ast.Term{ast.InternedTerm("most"), ast.InternedTerm(int(most))},
		[2]*ast.Term{ast.InternedTerm("granted"), ast.InternedTerm(int(g.granted))},
		[2]*ast.Term{ast.InternedTerm("left"), ast.InternedTerm(int(max(0, left)))},
	)))
}

// common finds what the pools of a group have in common, nil for all, and the others of the group; for a label,
// only a pool that has it shares.
func common(c, pool, usage *reader) (own, others *ast.Term, shares bool) {
	switch by := c.text("by"); v1alpha1.CeilingGroup(by) {
	case v1alpha1.CeilingAll:
		others = usage.get("all")
	case v1alpha1.CeilingNamespace:
		own, others = pool.get("namespace"), usage.get("namespace")
	case v1alpha1.CeilingConnection:
		own, others = pool.get("connection"), usage.get("connection")
	case v1alpha1.CeilingLabel:
		label := c.get("label")
		own, others = within(pool.get("labels"), label), within(usage.get("labels"), label)
		return own, others, own != nil
	default:
		c.missing("by", "All, Namespace, Connection or Label")
		return nil, nil, false
	}
	return own, others, true
}

var maxKey = ast.StringTerm("max")

// sharers are the other pools of a group.
type sharers struct {
	reader
	granted, pools int64
}

// sharer is one of them.
type sharer struct{ granted, wanted int64 }

// fair is what others leave if what they want is kept for them, up to an equal part for each pool that wants any: the
// rest may be borrowed. Beyond its own part, a pool leaves one runner to those that have less than theirs. A pool
// that may have none isn't given jobs by GitHub, so it could never show that it wants some: with that one it can, and
// then gets more of its part, as those that borrowed it finish jobs. Where more pools want runners than there are, a
// part is less than one, and it is whoever asks first.
//
// In most cases, there is an end to it without a look at each pool: the pool declares no more than an equal part
// if all wanted any, and the others leave it that. Or each of the others has and wants less than its part.
func fair(most, declared int64, g *sharers) int64 {
	if declared*(g.pools+1) <= most && declared+g.granted <= most {
		return most - g.granted
	}
	if g.get("claimed") != nil && g.number("claimed") >= g.granted {
		part := equalPart(most, g.pools, g.number("wanting"))
		if g.pools > 0 && g.number("largest") < part {
			return oneToSpare(most-g.number("claimed"), part)
		}
	}
	members := g.members()
	if int64(len(members)) != g.pools {
		g.missing("members", "all pools of the group: a fair ceiling takes what each was granted and wants")
	}
	wanting := int64(0)
	for _, m := range members {
		wanting += min(1, m.wanted)
	}
	part := equalPart(most, g.pools, wanting)
	claims, hasLess := int64(0), false
	for _, m := range members {
		claims += m.claim(part)
		hasLess = hasLess || m.wanted < part && m.granted < part
	}
	if hasLess {
		return oneToSpare(most-claims, part)
	}
	return most - claims
}

// members reads each of them.
func (g *sharers) members() []sharer {
	t := g.get("members")
	if t == nil {
		g.missing("members", "an array")
		return nil
	}
	array, ok := t.Value.(*ast.Array)
	if !ok {
		g.missing("members", "an array")
		return nil
	}
	list := make([]sharer, 0, array.Len())
	array.Foreach(func(t *ast.Term) {
		m := reader{of: t.Value}
		list = append(list, sharer{granted: m.number("granted"), wanted: m.number("wanted")})
		g.err = cmp.Or(g.err, m.err)
	})
	return list
}

// claim is what a pool claims: what it was granted, and what it wants up to a part.
func (s sharer) claim(part int64) int64 { return max(s.granted, min(s.wanted, part)) }

// equalPart is the part of a pool when so many of the others want runners. One is kept for those that want none,
// if there is more than one for each that wants some.
func equalPart(most, others, wanting int64) int64 {
	if others > wanting && most > wanting+1 {
		return (most - 1) / (wanting + 1)
	}
	return most / (wanting + 1)
}

func oneToSpare(rest, part int64) int64 { return max(rest-1, min(rest, part)) }

// reader reads an object that must have what is asked for; err says what it hasn't.
type reader struct {
	of  ast.Value
	err error
}

// get returns nil for what isn't there.
func (r *reader) get(name string) *ast.Term {
	o, ok := r.of.(ast.Object)
	if !ok {
		r.err = fmt.Errorf("a ceiling, a pool and their usage are objects, not %s", ast.ValueName(r.of))
		return nil
	}
	return o.Get(ast.StringTerm(name))
}

func (r *reader) text(name string) string {
	if t := r.get(name); t != nil {
		if text, ok := t.Value.(ast.String); ok {
			return string(text)
		}
	}
	r.missing(name, "a string")
	return ""
}

func (r *reader) number(name string) int64 {
	if t := r.get(name); t != nil {
		if n, ok := t.Value.(ast.Number); ok {
			if i, ok := n.Int64(); ok {
				return i
			}
		}
	}
	r.missing(name, "a whole number")
	return 0
}

func (r *reader) missing(name, kind string) {
	if r.err == nil {
		r.err = fmt.Errorf("%s is missing, or isn't %s", name, kind)
	}
}

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

// numberOf is 0 for what is no whole number.
func numberOf(t *ast.Term) int64 {
	if t == nil {
		return 0
	}
	n, _ := t.Value.(ast.Number)
	i, _ := n.Int64()
	return i
}

// nobody is a group without members.
var nobody = ast.NewObject(
	ast.Item(ast.StringTerm("claimed"), ast.InternedTerm(0)), ast.Item(ast.StringTerm("wanting"), ast.InternedTerm(0)),
	ast.Item(ast.StringTerm("largest"), ast.InternedTerm(0)), ast.Item(ast.StringTerm("members"), ast.InternedEmptyArray),
)

// groupOf reads a group; one that isn't there has nobody.
func groupOf(t *ast.Term) *sharers {
	if t == nil {
		return &sharers{reader: reader{of: nobody}}
	}
	g := &sharers{reader: reader{of: t.Value}}
	g.granted, g.pools = g.number("granted"), g.number("pools")
	return g
}
