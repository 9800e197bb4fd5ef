// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package turns

import (
	"container/list"
	"strings"
)

// node is a branch or a leaf of a tree of waiting items. The branches of a node take turns. The items of a leaf are
// served in the order of their arrival. A branch that has reached its limit of active items is skipped. A branch
// without waiting and active items is removed. The zero value is an empty tree. A node is not safe for concurrent use.
type node[T any] struct {
	name     string
	parent   *node[T]
	branches map[string]*node[T]
	most     int // the maximum number of active items; less than 1 means no limit
	underWay int
	next     list.List     // the branches that can be served, or the items of a leaf, in the order of their turns
	turn     *list.Element // the node's place in parent.next; nil while it cannot be served
}

// branch returns the branch with a name. It creates the branch if there is none, with most as the limit of active
// items.
func (n *node[T]) branch(name string, most int) *node[T] {
	b := n.branches[name]
	if b == nil {
		b = &node[T]{name: name, parent: n, most: most}
		if n.branches == nil {
			n.branches = map[string]*node[T]{}
		}
		n.branches[name] = b
	}
	return b
}

// flow returns the leaf of a flow. The part of the flow's name before a slash is its tenant. Tenants take turns, so
// that a tenant with many flows gets no more turns than a tenant with one flow. A tenant has at most perTenant active
// items; less than 1 means no limit. Flows without a slash in their name share one tenant, without a limit.
func (n *node[T]) flow(name string, perTenant int) *node[T] {
	tenant, _, found := strings.Cut(name, "/")
	if !found {
		return n.branch("", 0).branch(name, 0)
	}
	return n.branch(tenant, perTenant).branch(name, 0)
}

// push adds an item to a leaf and returns its place.
func (n *node[T]) push(item T) *list.Element {
	place := n.next.PushBack(item)
	n.settle()
	return place
}

// remove takes a waiting item out of its leaf.
func (n *node[T]) remove(place *list.Element) {
	n.next.Remove(place)
	n.settle()
}

// pop removes and returns the item whose turn it is, and the leaf that it came from. The item is active until done is
// called on that leaf. The branches on its path move to the end of their queues. pop returns a nil leaf if no item can
// be served.
func (n *node[T]) pop() (item T, leaf *node[T]) {
	first := n.next.Front()
	if first == nil {
		return item, nil
	}
	for b, ok := first.Value.(*node[T]); ok; b, ok = first.Value.(*node[T]) {
		b.underWay++
		n.next.MoveToBack(first)
		n = b
		first = n.next.Front()
	}
	item, _ = n.next.Remove(first).(T)
	n.settle()
	return item, n
}

// done records that an item that pop took from this leaf is no longer active.
func (n *node[T]) done() {
	for b := n; b.parent != nil; b = b.parent {
		b.underWay--
	}
	n.settle()
}

// settle updates the queues of the nodes above a changed node. A node is in the queue of its parent if it has something
// to serve and is below its limit. settle removes empty branches.
func (n *node[T]) settle() {
	for parent := n.parent; parent != nil; parent = n.parent {
		canBeServed := n.next.Len() > 0 && (n.most < 1 || n.underWay < n.most)
		switch {
		case canBeServed && n.turn == nil:
			n.turn = parent.next.PushBack(n)
		case !canBeServed && n.turn != nil:
			parent.next.Remove(n.turn)
			n.turn = nil
		}
		if n.underWay == 0 && n.next.Len() == 0 && len(n.branches) == 0 {
			delete(parent.branches, n.name)
		}
		n = parent
	}
}
