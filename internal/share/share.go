// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package share limits the number of entries that are kept for all namespaces together, so that no namespace can use up
// the capacity. One namespace has at most a quarter of the capacity. When the capacity is used up, a namespace with few
// entries still gets room: the namespace with the most entries loses its oldest entry. So even many namespaces together
// cannot lock out another namespace. If all namespaces have about the same number of entries, such as one each, the
// function Spare chooses the entry to drop. Spare is useful if the capacity is small and entries are kept for a long
// time.
package share

import "slices"

// Map stores values by namespace and key. It is not safe for concurrent use.
type Map[K comparable, V any] struct {
	// Spare chooses an entry to drop when the map is full and no other namespace has at least two entries more than the
	// requesting namespace. own is the number of entries of the requesting namespace. Spare returns false if no entry can
	// be dropped. If Spare is nil, no entry is dropped in this case.
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
	order  []K    // oldest first
	turn   uint64 // Take uses the part with the lowest turn next
}

// New returns a Map with a maximum number of entries. It calls dropped, unless that is nil, with each entry that it
// drops to make room.
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

// Put stores a value. It returns false if there is no room for another key.
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

// Push stores a value that is more important than older entries: if there is no room, it drops the namespace's own
// oldest entries.
func (m *Map[K, V]) Push(namespace string, key K, value V) {
	for !m.Put(namespace, key, value) && m.Len(namespace) > 0 {
		m.dropOldest(namespace)
	}
}

// makeRoom reports whether a namespace may have one more entry. If the map is full, it drops another entry to make
// room.
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

// dropSpare drops the entry that Spare chooses, and reports whether there was one.
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

// removed updates the counts after n entries of a namespace were removed.
func (m *Map[K, V]) removed(namespace string, n int) {
	m.total -= n
	if m.Len(namespace) == 0 {
		delete(m.of, namespace)
	}
}

// Take removes and returns the oldest entry of one namespace. Namespaces take turns. It returns false if the map is empty.
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
func (m *Map[K, V]) DeleteFunc(namespace string, match func(K) bool) {
	p := m.of[namespace]
	if p == nil {
		return
	}
	before := len(p.order)
	p.order = slices.DeleteFunc(p.order, func(key K) bool {
		matches := match(key)
		if matches {
			delete(p.values, key)
		}
		return matches
	})
	m.removed(namespace, before-len(p.order))
}
