// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import "math/rand/v2"

// claimTree sums up what pools claim if each is kept at most a part of what it wants: the larger of what it was granted, and the
// smaller of what it wants and the part. As the part grows, that sum rises from what was granted by 1 for each pool that
// wants more. Such a pool begins to count at what it was granted, and no longer counts from what it wants on.
//
// So the tree has these numbers, sorted, and each subtree its sums: then a sum for any part takes a look at one node in each
// level. It is a treap: a random weight for each node, and no node is above a heavier one, so its depth is logarithmic.
type claimTree struct {
	at          int64
	weight      uint64
	left, right *claimTree
	own, all    claimSum
}

// claimSum is what numbers of the tree come to.
type claimSum struct {
	// rising is how many pools count at a part above these numbers, and base the sum of the numbers at which they began to.
	rising, base int64
	// pools are those that were granted no more, and want no more, than these numbers.
	pools int64
}

func (s claimSum) plus(o claimSum) claimSum {
	return claimSum{s.rising + o.rising, s.base + o.base, s.pools + o.pools}
}

func (t *claimTree) sum() claimSum {
	if t == nil {
		return claimSum{}
	}
	return t.all
}

// with adds a pool n times; -1 takes it out.
func (t *claimTree) with(m Member, n int64) *claimTree {
	granted, most := int64(m.Granted), m.claim(int64(m.Wanted))
	t = t.add(granted, claimSum{rising: n, base: n * granted})
	return t.add(most, claimSum{rising: -n, base: -n * most, pools: n})
}

// add adds to what there is at a number.
func (t *claimTree) add(at int64, sum claimSum) *claimTree {
	low, rest := t.split(at)
	node, high := rest.split(at + 1)
	if node == nil {
		node = &claimTree{at: at, weight: rand.Uint64()}
	}
	node.own = node.own.plus(sum)
	if node.own == (claimSum{}) {
		return joined(low, high)
	}
	return joined(joined(low, node.under(nil, nil)), high)
}

// below sums up the numbers below one.
func (t *claimTree) below(at int64) (sum claimSum) {
	for t != nil {
		if t.at >= at {
			t = t.left
			continue
		}
		sum = sum.plus(t.own).plus(t.left.sum())
		t = t.right
	}
	return sum
}

// under puts two trees under a node.
func (t *claimTree) under(left, right *claimTree) *claimTree {
	t.left, t.right = left, right
	t.all = t.own.plus(left.sum()).plus(right.sum())
	return t
}

// split divides a tree into the numbers below one, and the others.
func (t *claimTree) split(at int64) (low, high *claimTree) {
	if t == nil {
		return nil, nil
	}
	if t.at < at {
		low, high = t.right.split(at)
		return t.under(t.left, low), high
	}
	low, high = t.left.split(at)
	return low, t.under(high, t.right)
}

// joined joins two trees, of which the first has the smaller numbers.
func joined(low, high *claimTree) *claimTree {
	switch {
	case low == nil:
		return high
	case high == nil:
		return low
	case low.weight > high.weight:
		return low.under(low.left, joined(low.right, high))
	}
	return high.under(joined(low, high.left), high.right)
}
