// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package share limits the data that is kept for all namespaces together, so that no namespace can exhaust the space. One namespace has at most
// a quarter of the places. When all places are taken, the namespace with the most places gives up its oldest entry to a namespace that has
// fewer. Therefore even many namespaces together cannot keep another one out. If all have an equal number, such as one each, Spare decides
// whether a place can be freed. Spare is for places that are few and held for long.
package share

import "slices"

// Map keeps values of namespaces by a key. It is not safe for concurrent use.
type Map[K comparable, V any] struct {
	// Spare chooses the entry that makes room when all places are taken and no namespace has more than one entry more than the requesting
	// namespace, which has own entries. It returns false if no entry can be dropped. If Spare is nil, no entry can be dropped.
	Spare func(own int) (namespace string, key K, ok bool)

	most    int
	dropped func(namespace string, key K)
	of      map[string]*part[K, V]
	total   int
	turn    uint64
}

// part holds the entries of one namespace.
type part[K comparable, V any] struct {
	values map[K]V
	order  []K    // the oldest first
	turn   uint64 // the part with the lowest turn is next
}

// New returns a Map with a maximum number of entries. It calls dropped, unless that is nil, with each entry that it drops to make room.
func New[K comparable, V any](most int, dropped func(namespace string, key K)) *Map[K, V] {
	return &Map[K, V]{most: most, dropped: dropped, of: map[string]*part[K, V]{}}
}

// Len returns the number of entries of a namespace.
func (m *Map[K, V]) Len(namespace string) int {
	if p := m.of[namespace]; p != nil {
		return len(p.order)
	}
	return 0
}

// Get returns the value of a key.
func (m *Map[K, V]) Get(namespace string, key K) (value V, ok bool) {
	if p := m.of[namespace]; p != nil {
		value, ok = p.values[key]
	}
	return value, ok
}

// Put keeps a value. It returns false if there is no place for another key.
func (m *Map[K, V]) Put(namespace string, key K, value V) bool {
	_, known := m.Get(namespace, key)
	if !known && !m.makeRoom(namespace) {
		return false
	}
	p := m.of[namespace]
	if p == nil {
		m.turn++
		p = &part[K, V]{values: map[K]V{}, turn: m.turn}
		m.of[namespace] = p
	}
	if p.values[key] = value; !known {
		p.order = append(p.order, key)
		m.total++
	}
	return true
}

// Push is Put for a value that is more important than older entries: if there is no place, the namespace's own oldest entry makes room.
func (m *Map[K, V]) Push(namespace string, key K, value V) {
	for !m.Put(namespace, key, value) && m.Len(namespace) > 0 {
		m.dropOldest(namespace)
	}
}

// makeRoom reports whether a namespace may have one more entry.
func (m *Map[K, V]) makeRoom(namespace string) bool {
	own := m.Len(namespace)
	if own >= max(1, m.most/4) {
		return false
	}
	if m.total < m.most {
		return true
	}
	largest := ""
	for other := range m.of {
		if m.Len(other) > m.Len(largest) {
			largest = other
		}
	}
	if m.Len(largest) > own+1 {
		m.dropOldest(largest)
		return true
	}
	return m.dropSpare(own)
}

// dropSpare reports whether it dropped an entry that Spare chose.
func (m *Map[K, V]) dropSpare(own int) bool {
	if m.Spare == nil {
		return false
	}
	namespace, key, ok := m.Spare(own)
	if ok {
		m.DeleteFunc(namespace, func(other K) bool { return other == key })
		m.drop(namespace, key)
	}
	return ok
}

func (m *Map[K, V]) dropOldest(namespace string) {
	key, _ := m.removeOldest(namespace)
	m.drop(namespace, key)
}

func (m *Map[K, V]) drop(namespace string, key K) {
	if m.dropped != nil {
		m.dropped(namespace, key)
	}
}

func (m *Map[K, V]) removeOldest(namespace string) (key K, value V) {
	p := m.of[namespace]
	key = p.order[0]
	value = p.values[key]
	p.order = p.order[1:]
	delete(p.values, key)
	m.removed(namespace, 1)
	return key, value
}

// removed counts entries of a namespace that were removed.
func (m *Map[K, V]) removed(namespace string, n int) {
	m.total -= n
	if m.Len(namespace) == 0 {
		delete(m.of, namespace)
	}
}

// Take removes an entry and returns it: the oldest of one namespace, then of the next. It returns false if there is none.
func (m *Map[K, V]) Take() (key K, value V, ok bool) {
	next := ""
	for namespace, p := range m.of {
		if first := m.of[next]; first == nil || p.turn < first.turn {
			next = namespace
		}
	}
	p := m.of[next]
	if p == nil {
		return key, value, false
	}
	m.turn++
	p.turn = m.turn
	key, value = m.removeOldest(next)
	return key, value, true
}

// DeleteFunc removes the entries of a namespace whose keys match.
func (m *Map[K, V]) DeleteFunc(namespace string, goes func(K) bool) {
	p := m.of[namespace]
	if p == nil {
		return
	}
	before := len(p.order)
	p.order = slices.DeleteFunc(p.order, func(key K) bool {
		gone := goes(key)
		if gone {
			delete(p.values, key)
		}
		return gone
	})
	m.removed(namespace, before-len(p.order))
}
