// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"container/heap"
	"sync"
)

// Bytes limits the number of bytes that each namespace, and all namespaces together, may hold. A namespace that exceeds
// its own limit loses its largest Hold. If all namespaces together exceed their limit, the namespace with the most
// bytes loses its largest Hold. Bytes is safe for concurrent use.
type Bytes struct {
	most, each int64

	mu    sync.Mutex
	total int64
	kept  int64
	of    map[string]*account
}

// account holds the usage of a namespace.
type account struct {
	bytes, kept int64
	uses        int   // number of Holds that are neither lost nor released
	open        holds // the Holds that can be lost
}

// Hold holds the bytes of one operation.
type Hold struct {
	all       *Bytes
	namespace string
	lose      func()
	bytes     int64
	place     int // index in account.open, or one of the constants below
}

const (
	kept = -1 - iota
	gone // lost, or released by Leave
)

// NewBytes returns Bytes with the limit most for all namespaces together and the limit each for one namespace.
func NewBytes(most, each int64) *Bytes {
	return &Bytes{most: most, each: each, of: map[string]*account{}}
}

// Hold returns an empty Hold. When the Hold is lost, Add calls lose with the lock held. The owner of the Hold must then
// release its memory soon.
func (b *Bytes) Hold(namespace string, lose func()) *Hold {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := &Hold{all: b, namespace: namespace, lose: lose}
	if b.of[namespace] == nil {
		b.of[namespace] = &account{}
	}
	b.of[namespace].uses++
	heap.Push(&b.of[namespace].open, h)
	return h
}

// Open returns the number of Holds that can be lost.
func (b *Bytes) Open() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, a := range b.of {
		n += len(a.open)
	}
	return n
}

// Add adds n bytes to the Hold; n may be negative. It returns false if the Hold was lost before, is lost now, or was
// released.
func (h *Hold) Add(n int64) bool {
	b := h.all
	b.mu.Lock()
	defer b.mu.Unlock()
	if h.place == gone {
		return false
	}
	a := b.of[h.namespace]
	b.count(h, n)
	if h.place != kept {
		heap.Fix(&a.open, h.place)
	}
	for h.place != gone {
		excessive := b.excessive(a)
		if excessive == nil {
			break
		}
		largest := excessive.open[0]
		b.drop(largest)
		largest.lose()
	}
	return h.place != gone
}

// excessive returns the account that must lose its largest Hold after a change of account a: a if it exceeds the limit
// of a namespace, otherwise the largest account if all accounts together exceed their limit. It returns nil if no Hold
// must be lost, or if none can be.
func (b *Bytes) excessive(a *account) *account {
	var found *account
	switch {
	case a.bytes > b.each:
		found = a
	case b.total > b.most:
		for _, other := range b.of {
			if len(other.open) > 0 && (found == nil || other.bytes > found.bytes || other.bytes == found.bytes && other == a) {
				found = other
			}
		}
	}
	if found == nil || len(found.open) == 0 {
		return nil
	}
	return found
}

// Keep protects the Hold from being lost. It changes nothing and returns false if the Hold is already protected, lost
// or released, if the protected bytes of its namespace would exceed own, or if the protected bytes of all namespaces
// would exceed all.
func (h *Hold) Keep(own, all int64) bool {
	b := h.all
	b.mu.Lock()
	defer b.mu.Unlock()
	if h.place < 0 || b.of[h.namespace].kept+h.bytes > own || b.kept+h.bytes > all {
		return false
	}
	a := b.of[h.namespace]
	heap.Remove(&a.open, h.place)
	h.place = kept
	a.kept += h.bytes
	b.kept += h.bytes
	return true
}

// Leave permanently releases all bytes of the Hold. Further calls have no effect.
func (h *Hold) Leave() {
	h.all.mu.Lock()
	defer h.all.mu.Unlock()
	if h.place != gone {
		h.all.drop(h)
	}
}

func (b *Bytes) drop(h *Hold) {
	a := b.of[h.namespace]
	if h.place != kept {
		heap.Remove(&a.open, h.place)
	}
	b.count(h, -h.bytes)
	h.place = gone
	if a.uses--; a.uses == 0 {
		delete(b.of, h.namespace)
	}
}

func (b *Bytes) count(h *Hold, n int64) {
	a := b.of[h.namespace]
	h.bytes += n
	a.bytes += n
	b.total += n
	if h.place == kept {
		a.kept += n
		b.kept += n
	}
}

// holds is a heap with the largest Hold first.
type holds []*Hold

func (h holds) Len() int           { return len(h) }
func (h holds) Less(i, j int) bool { return h[i].bytes > h[j].bytes }

func (h holds) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements heap.Interface.
func (h *holds) Push(x any) {
	x.(*Hold).place = len(*h)
	*h = append(*h, x.(*Hold))
}

// Pop implements heap.Interface.
func (h *holds) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return x
}
