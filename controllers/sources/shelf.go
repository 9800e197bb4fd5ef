// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package sources

import (
	"container/list"
	"encoding/json"
	"sync"

	"github.com/corral-dev/corral/internal/compile"
)

const (
	// shelfBytes is how much of compiled revisions is kept, as JSON: in memory it is some ten times as much.
	shelfBytes = 32 << 20
	// entryOverhead is counted for each, so that many small ones are bounded, too.
	entryOverhead = 1 << 10
)

// shelf keeps what revisions compiled to, so that looking at an unchanged branch costs neither a fetch nor a compilation. When it is full,
// what was used the longest ago goes of the namespace that keeps the most: nobody's sources take the place of others'.
type shelf struct {
	most int // bytes

	mu      sync.Mutex
	kept    int
	tenants map[string]*keeper
}

// keeper is what is kept for one namespace.
type keeper struct {
	kept  int
	items map[cacheKey]*list.Element
	order list.List // of *item, the one used last in front
}

type item struct {
	key    cacheKey
	size   int
	result compile.Result
}

func newShelf(most int) *shelf { return &shelf{most: most, tenants: map[string]*keeper{}} }

// get returns what a revision compiled to.
func (s *shelf) get(namespace string, key cacheKey) (compile.Result, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.tenants[namespace]
	if k == nil || k.items[key] == nil {
		return compile.Result{}, false
	}
	k.order.MoveToFront(k.items[key])
	return k.items[key].Value.(*item).result, true
}

// add keeps what a revision compiled to, unless it takes a quarter of the room by itself.
func (s *shelf) add(namespace string, key cacheKey, result compile.Result) {
	size := sizeOf(result)
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.tenants[namespace]
	if k == nil {
		k = &keeper{items: map[cacheKey]*list.Element{}}
		s.tenants[namespace] = k
	}
	if known := k.items[key]; known != nil {
		s.drop(k, known)
	}
	if size <= s.most/4 {
		k.items[key] = k.order.PushFront(&item{key: key, size: size, result: result})
		k.kept, s.kept = k.kept+size, s.kept+size
	}
	for s.kept > s.most {
		most := s.greediest()
		s.drop(most, most.order.Back())
	}
	for name, k := range s.tenants {
		if len(k.items) == 0 {
			delete(s.tenants, name)
		}
	}
}

func (s *shelf) drop(k *keeper, e *list.Element) {
	i := k.order.Remove(e).(*item)
	delete(k.items, i.key)
	k.kept, s.kept = k.kept-i.size, s.kept-i.size
}

// greediest returns who keeps the most.
func (s *shelf) greediest() *keeper {
	var most *keeper
	for _, k := range s.tenants {
		if most == nil || k.kept > most.kept {
			most = k
		}
	}
	return most
}

// sizeOf is how many bytes a result takes as JSON, or more than there is room for if it has none.
func sizeOf(result compile.Result) int {
	text, err := json.Marshal(result)
	if err != nil {
		return shelfBytes
	}
	return entryOverhead + len(text)
}
