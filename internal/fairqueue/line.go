// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package fairqueue

import "strings"

// line holds the keys that wait: owners take turns, within an owner its groups do, within a group its tenants, within a tenant its
// flows, and within a flow the first come is the first served. Empty ones are dropped.
type line struct {
	perGroup, perOwner int // less than 1 is no bound
	owners             map[string]*owner
	// ready are the owners with a ready group and a free place, the next first.
	ready   list[*owner]
	waiting int
}

// owner is the groups whose names begin with the same, up to a slash: they share places at the workers, too.
type owner struct {
	name   string
	groups map[string]*group
	// ready are the groups with a waiting key and a free place, the next first.
	ready   list[*group]
	turn    link[*owner]
	running int
}

// group is a set of tenants that share places at the workers.
type group struct {
	name    string
	owner   *owner
	tenants map[string]*tenant
	turns   list[*tenant] // the next first; none is empty
	turn    link[*group]
	running int
}

// tenant is the flows of a group whose names begin with the same, up to a slash: its many flows get no more turns than another's one.
type tenant struct {
	name  string
	group *group
	flows map[string]*flow
	turns list[*flow] // the next first; none is empty
	turn  link[*tenant]
}

// flow is a line of keys within a tenant.
type flow struct {
	name   string
	tenant *tenant
	keys   list[*entry]
	turn   link[*flow]
}

func newLine(perGroup, perOwner int) line {
	return line{perGroup: perGroup, perOwner: perOwner, owners: map[string]*owner{}}
}

// push puts a key at the end of the flow it was classified to.
func (l *line) push(e *entry) {
	g := l.ownerOf(e.group).group(e.group)
	f := g.tenantOf(e.flow).flow(e.flow)
	f.keys.push(&e.place)
	e.waiting = f
	l.waiting++
	l.settle(g)
}

// ownerOf returns the owner that a group is of: one without a slash is its own.
func (l *line) ownerOf(groupName string) *owner {
	name, _, _ := strings.Cut(groupName, "/")
	o := l.owners[name]
	if o == nil {
		o = &owner{name: name, groups: map[string]*group{}}
		o.turn.of = o
		l.owners[name] = o
	}
	return o
}

func (o *owner) group(name string) *group {
	g := o.groups[name]
	if g == nil {
		g = &group{name: name, owner: o, tenants: map[string]*tenant{}}
		g.turn.of = g
		o.groups[name] = g
	}
	return g
}

// tenantOf returns the tenant that a flow is of.
func (g *group) tenantOf(flowName string) *tenant {
	name, _, found := strings.Cut(flowName, "/")
	if !found {
		name = ""
	}
	t := g.tenants[name]
	if t == nil {
		t = &tenant{name: name, group: g, flows: map[string]*flow{}}
		t.turn.of = t
		g.tenants[name] = t
		g.turns.push(&t.turn)
	}
	return t
}

func (t *tenant) flow(name string) *flow {
	f := t.flows[name]
	if f == nil {
		f = &flow{name: name, tenant: t}
		f.turn.of = f
		t.flows[name] = f
		t.turns.push(&f.turn)
	}
	return f
}

// pop takes the key whose turn it is as one that is processed; nil if there is none.
func (l *line) pop() *entry {
	if l.ready.front() == nil {
		return nil
	}
	o := l.ready.front().of
	g := o.ready.front().of
	t := g.turns.front().of
	f := t.turns.front().of
	e := f.keys.front().of
	t.turns.remove(&f.turn)
	t.turns.push(&f.turn)
	g.turns.remove(&t.turn)
	g.turns.push(&t.turn)
	o.ready.remove(&g.turn)
	l.ready.remove(&o.turn)
	g.running++
	o.running++
	e.running = g
	l.remove(e)
	return e
}

// remove takes a waiting key out.
func (l *line) remove(e *entry) {
	f := e.waiting
	f.keys.remove(&e.place)
	e.waiting = nil
	l.waiting--
	t := f.tenant
	if f.keys.front() == nil {
		t.turns.remove(&f.turn)
		delete(t.flows, f.name)
	}
	if t.turns.front() == nil {
		t.group.turns.remove(&t.turn)
		delete(t.group.tenants, t.name)
	}
	l.settle(t.group)
}

// done frees the key's place, and tells whether another of its owner may have it.
func (l *line) done(e *entry) bool {
	g := e.running
	e.running = nil
	g.running--
	g.owner.running--
	l.settle(g)
	return g.owner.turn.in()
}

// settle puts a group, and its owner, at the end of those that take turns, or takes them out.
func (l *line) settle(g *group) {
	o, works := g.owner, g.turns.front() != nil
	perGroup := l.perGroup
	if g.name == o.name && l.perOwner > 0 { // it is all of its owner's
		perGroup = l.perOwner
	}
	o.ready.settle(&g.turn, works && free(g.running, perGroup))
	l.ready.settle(&o.turn, o.ready.front() != nil && free(o.running, l.perOwner))
	if !works && g.running == 0 {
		delete(o.groups, g.name)
	}
	if len(o.groups) == 0 {
		delete(l.owners, o.name)
	}
}

func free(running, bound int) bool { return bound < 1 || running < bound }

// list is a doubly linked list whose links are parts of what they link: nothing is
// allocated. Its zero value is empty.
type list[T any] struct{ first, last *link[T] }

// link is a place in a list.
type link[T any] struct {
	of         T
	prev, next *link[T]
	list       *list[T]
}

func (k *link[T]) in() bool { return k.list != nil }

func (l *list[T]) front() *link[T] { return l.first }

func (l *list[T]) push(k *link[T]) {
	k.list, k.prev = l, l.last
	if l.last == nil {
		l.first = k
	} else {
		l.last.next = k
	}
	l.last = k
}

// settle puts what isn't in at the end if it may be in, and takes it out otherwise.
func (l *list[T]) settle(k *link[T], may bool) {
	switch {
	case may && !k.in():
		l.push(k)
	case !may && k.in():
		l.remove(k)
	}
}

func (l *list[T]) remove(k *link[T]) {
	if k.prev == nil {
		l.first = k.next
	} else {
		k.prev.next = k.next
	}
	if k.next == nil {
		l.last = k.prev
	} else {
		k.next.prev = k.prev
	}
	k.prev, k.next, k.list = nil, nil, nil
}
