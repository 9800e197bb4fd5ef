// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"sync"
	"time"

	"github.com/corral-dev/corral/internal/clock"
)

// afterlife is how long a dropped connection's credentials still serve, so that clean-up
// on GitHub works when a connection is deleted together with its pools.
const afterlife = time.Hour

// Connections holds the credentials of each connection, by its key NAMESPACE/NAME. It is safe for concurrent use.
type Connections struct {
	// Report is called after each answer of GitHub with how far its clock is ahead, as a clock.Report with the connection's key.
	Report func(key string, ahead time.Duration, crossed bool)

	now    func() time.Time
	memory *memory

	mu        sync.Mutex
	byKey     map[string]connection
	drops     []drop                          // the oldest first; some connections are there again
	forgotten []func(key string)              // called with connections that no longer serve
	failing   map[string]map[string]*failures // by key and class of calls
	// refused and accepted are when a connection's credentials last were, by key.
	refused, accepted map[string]time.Time
	clocks            map[string]*clock.Clock // GitHub's, by key
	onTrouble         []func(key string)
}

type connection struct {
	creds   Credentials
	hash    string
	dropped time.Time // zero while the connection is there
}

// drop is when a connection was dropped.
type drop struct {
	key string
	at  time.Time
}

// NewConnections returns an empty set of connections.
func NewConnections(now func() time.Time) *Connections {
	return &Connections{Report: func(string, time.Duration, bool) {}, now: now, memory: newMemory(), byKey: map[string]connection{}, failing: map[string]map[string]*failures{}, refused: map[string]time.Time{}, accepted: map[string]time.Time{}, clocks: map[string]*clock.Clock{}}
}

// Set gives a connection its credentials. It fails on those that can't work, and keeps the ones before.
func (c *Connections) Set(key string, creds Credentials) error {
	if err := creds.Validate(); err != nil {
		return err
	}
	hash := creds.Hash() + creds.NetworkHash()
	c.mu.Lock()
	defer c.mu.Unlock()
	if hash != c.byKey[key].hash {
		delete(c.failing, key) // of the former ones
	}
	c.byKey[key] = connection{creds: creds, hash: hash}
	return nil
}

// Serving identifies the credentials that a connection's clients have, by their hash and that of their network; "" for none.
func (c *Connections) Serving(key string) (hash string) {
	x, _ := c.get(key)
	return x.hash
}

// Serves reports whether a connection has credentials, also for an hour after Drop.
func (c *Connections) Serves(key string) bool {
	_, ok := c.get(key)
	return ok
}

func (c *Connections) get(key string) (connection, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.drops) > 0 && c.now().Sub(c.drops[0].at) >= afterlife {
		if d := c.drops[0]; c.byKey[d.key].dropped.Equal(d.at) {
			c.forget(d.key)
		}
		c.drops = c.drops[1:]
	}
	x, ok := c.byKey[key]
	return x, ok
}

// forget forgets a connection that no longer serves.
func (c *Connections) forget(key string) {
	delete(c.byKey, key)
	delete(c.failing, key)
	delete(c.refused, key)
	delete(c.accepted, key)
	delete(c.clocks, key)
	clock.Offsets.DeleteLabelValues(Server, key)
	for _, forget := range c.forgotten {
		forget(key)
	}
}

// Drop marks a connection as gone.
func (c *Connections) Drop(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x, ok := c.byKey[key]; ok && x.dropped.IsZero() {
		x.dropped = c.now()
		c.byKey[key] = x
		c.drops = append(c.drops, drop{key, x.dropped})
	}
}

// Clients makes and keeps one client of a kind per connection that is asked for. It is safe for concurrent use.
type Clients[C any] struct {
	connections *Connections
	open        func(key string, creds Credentials) (C, error)
	closed      func(key string)

	mu    sync.Mutex
	byKey map[string]client[C]
}

type client[C any] struct {
	of   C
	hash string
}

// NewClients returns the clients of connections, opened by a function. Another is called with connections that no longer serve.
func NewClients[C any](connections *Connections, open func(key string, creds Credentials) (C, error), closed func(key string)) *Clients[C] {
	c := &Clients[C]{connections: connections, open: open, closed: closed, byKey: map[string]client[C]{}}
	connections.mu.Lock()
	defer connections.mu.Unlock()
	connections.forgotten = append(connections.forgotten, c.forget)
	return c
}

// Get returns the client of a connection, by its key; false while the connection has no credentials. It is another client once the
// credentials changed.
func (c *Clients[C]) Get(key string) (C, bool) {
	x, ok := c.connections.get(key)
	if known := c.opened(key); known.hash == x.hash { // both zero while there are no credentials
		return known.of, ok
	}
	opened, err := c.open(key, x.creds) // without the lock: the certificates of a network may be many
	if err != nil {                     // these credentials were found to work, by Set
		return opened, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.byKey[key]; known.hash == x.hash { // opened by another caller meanwhile
		return known.of, true
	}
	c.byKey[key] = client[C]{of: opened, hash: x.hash}
	return opened, true
}

// opened returns the client of a connection that was opened last.
func (c *Clients[C]) opened(key string) client[C] {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byKey[key]
}

func (c *Clients[C]) forget(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.byKey, key)
	c.closed(key)
}
