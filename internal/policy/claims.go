// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import "math/rand/v2"

// claimTree computes the sum of the claims of pools if each claims at most a given part. A claim is the smaller of the
// pool's demand and the part, or the pool's grant if that is larger. The sum for the part 0 is the sum of the grants.
// From each part to the next, the sum rises by 1 for each rising pool: a pool begins to rise at its grant and stops at
// its demand.
//
// The tree is sorted by these two numbers of each pool, and each node stores the sums of its subtree. The sum for any
// part is computed from one node per level. The tree is a treap: each node has a random weight and no heavier node
// below it, so the depth is logarithmic.
type claimTree struct {
	at          int64
	weight      uint64
	left, right *claimTree
	own, all    claimSum
}

// claimSum is a sum over numbers in the tree.
type claimSum struct {
	// rising is the number of pools that rise at a part above these numbers. base is the sum of the numbers at which they
	// began to rise.
	rising, base int64
	// pools is the number of pools whose grant and demand do not exceed these numbers.
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

// with adds a pool if n is 1, and removes it if n is -1.
func (t *claimTree) with(m Member, n int64) *claimTree {
	granted, most := int64(m.Granted), m.claim(int64(m.Wanted))
	t = t.add(granted, claimSum{rising: n, base: n * granted})
	return t.add(most, claimSum{rising: -n, base: -n * most, pools: n})
}

// add adds to the sum at a number. It removes the node if its sum becomes zero.
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

// below returns the sum of all numbers below the given one.
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

// under makes two trees the children of a node.
func (t *claimTree) under(left, right *claimTree) *claimTree {
	t.left, t.right = left, right
	t.all = t.own.plus(left.sum()).plus(right.sum())
	return t
}

// split divides a tree into the numbers below the given one, and the others.
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

// joined joins two trees. All numbers of the first must be smaller.
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
