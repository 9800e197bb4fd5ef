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
	// CacheMemory is the maximum memory of the cache, in bytes. One result may take at most a quarter of it.
	CacheMemory = 96 << 20
	// entryOverhead is added to the size of each result, in bytes, so that many small results are limited, too.
	entryOverhead = 1 << 10
)

// compileCache keeps compiled revisions, so that an unchanged branch costs neither a fetch nor a compilation. When it is
// full, the namespace that uses the most space loses its least recently used result, so a tenant cannot evict the results of
// tenants that use less.
//
// The cache stores results as JSON. Decoded results would take up to 50 times as much memory, depending on the definitions.
type compileCache struct {
	most int // maximum size of all results, in bytes

	mu      sync.Mutex
	kept    int
	tenants map[string]*tenantCache
}

// tenantCache has the results of one namespace.
type tenantCache struct {
	kept  int
	items map[cacheKey]*list.Element
	order list.List // of *item, most recently used first
}

type item struct {
	key  cacheKey
	json []byte
}

func (i *item) size() int { return entryOverhead + len(i.json) }

func newCompileCache(most int) *compileCache {
	return &compileCache{most: most, tenants: map[string]*tenantCache{}}
}

// get returns a compiled revision, and whether it is cached.
func (c *compileCache) get(namespace string, key cacheKey) (result compile.Result, isKnown bool) {
	err := json.Unmarshal(c.find(namespace, key), &result)
	return result, err == nil
}

// find returns the JSON of a result, or nil.
func (c *compileCache) find(namespace string, key cacheKey) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.tenants[namespace]
	if k == nil || k.items[key] == nil {
		return nil
	}
	k.order.MoveToFront(k.items[key])
	return k.items[key].Value.(*item).json
}

// add caches a compiled revision, unless the result takes more than a quarter of the space.
func (c *compileCache) add(namespace string, key cacheKey, result compile.Result) {
	text, err := json.Marshal(result)
	if err != nil {
		return // the revision will be compiled again
	}
	added := &item{key, text}
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.tenants[namespace]
	if k == nil {
		k = &tenantCache{items: map[cacheKey]*list.Element{}}
		c.tenants[namespace] = k
	}
	if known := k.items[key]; known != nil {
		c.drop(k, known)
	}
	if added.size() <= c.most/4 {
		k.items[key] = k.order.PushFront(added)
		k.kept, c.kept = k.kept+added.size(), c.kept+added.size()
	}
	for c.kept > c.most {
		largest := c.largest()
		c.drop(largest, largest.order.Back())
	}
	for name, k := range c.tenants {
		if len(k.items) == 0 {
			delete(c.tenants, name)
		}
	}
}

func (c *compileCache) drop(k *tenantCache, e *list.Element) {
	i := k.order.Remove(e).(*item)
	delete(k.items, i.key)
	k.kept, c.kept = k.kept-i.size(), c.kept-i.size()
}

// largest returns the tenant that uses the most space.
func (c *compileCache) largest() *tenantCache {
	var most *tenantCache
	for _, k := range c.tenants {
		if most == nil || k.kept > most.kept {
			most = k
		}
	}
	return most
}
