// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"sync"
	"time"

	"github.com/corral-dev/corral/internal/clock"
)

// afterlife is how long the credentials of a dropped connection remain usable, so that Corral can clean up on GitHub
// when a connection is deleted together with its pools.
const afterlife = time.Hour

// forgetAtOnce is the maximum number of connections that one call forgets, because other callers wait for the lock
// meanwhile.
const forgetAtOnce = 8

// Connections holds the credentials of each connection, by its key NAMESPACE/NAME. It is safe for concurrent use.
type Connections struct {
	// Report is called after each of GitHub's answers with the difference of its clock: a clock.Report with the
	// connection's key.
	Report func(key string, ahead time.Duration, crossed bool)

	now        func() time.Time
	memory     *memory
	allowances *allowances

	mu        sync.Mutex
	byKey     map[string]connection
	drops     []drop                          // oldest first; some of the connections may exist again
	forgotten []func(key string)              // called with the keys of forgotten connections
	failing   map[string]map[string]*failures // by key and class of calls
	// refused and accepted hold the time when GitHub last refused or accepted a connection's credentials, by key.
	refused, accepted map[string]time.Time
	clocks            map[string]*clock.Clock // GitHub's, by key
	onTrouble         []func(key string)
}

type connection struct {
	creds   Credentials
	hash    string
	dropped time.Time // zero while the connection exists
}

// drop records when a connection was dropped.
type drop struct {
	key string
	at  time.Time
}

// NewConnections returns an empty set of connections.
func NewConnections(now func() time.Time) *Connections {
	return &Connections{Report: func(string, time.Duration, bool) {}, now: now, memory: newMemory(), allowances: &allowances{full: map[string]time.Time{}}, byKey: map[string]connection{}, failing: map[string]map[string]*failures{}, refused: map[string]time.Time{}, accepted: map[string]time.Time{}, clocks: map[string]*clock.Clock{}}
}

// Set sets a connection's credentials. If they are invalid, it returns an error and keeps the previous ones.
func (c *Connections) Set(key string, creds Credentials) error {
	if err := creds.Validate(); err != nil {
		return err
	}
	hash := creds.Hash() + creds.NetworkHash()
	c.mu.Lock()
	defer c.mu.Unlock()
	if hash != c.byKey[key].hash {
		delete(c.failing, key) // they were counted with the previous credentials
	}
	c.byKey[key] = connection{creds: creds, hash: hash}
	return nil
}

// Serving returns the hash of a connection's credentials and of their network; "" if it has none.
func (c *Connections) Serving(key string) (hash string) {
	x, _ := c.get(key)
	return x.hash
}

// Serves reports whether a connection has credentials. A dropped connection still has them for an hour.
func (c *Connections) Serves(key string) bool {
	_, ok := c.get(key)
	return ok
}

func (c *Connections) get(key string) (connection, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	isOver := func(dropped time.Time) bool { return !dropped.IsZero() && c.now().Sub(dropped) >= afterlife }
	for n := 0; n < forgetAtOnce && len(c.drops) > 0 && isOver(c.drops[0].at); n++ {
		if d := c.drops[0]; c.byKey[d.key].dropped.Equal(d.at) {
			c.forget(d.key)
		}
		c.drops = c.drops[1:]
	}
	x, ok := c.byKey[key]
	if isOver(x.dropped) {
		return connection{}, false
	}
	return x, ok
}

// forget removes all data about a connection whose credentials have expired.
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

// Drop marks a connection as deleted. Its credentials remain usable for an hour.
func (c *Connections) Drop(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x, ok := c.byKey[key]
	switch {
	case !ok: // it was never verified
		c.forget(key)
	case x.dropped.IsZero():
		x.dropped = c.now()
		c.byKey[key] = x
		c.drops = append(c.drops, drop{key, x.dropped})
	}
}

// Clients creates and caches one client per connection. It is safe for concurrent use.
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

// NewClients returns a set of clients. open creates a client. closed is called with the key of each connection that is
// forgotten, while locks are held.
func NewClients[C any](connections *Connections, open func(key string, creds Credentials) (C, error), closed func(key string)) *Clients[C] {
	c := &Clients[C]{connections: connections, open: open, closed: closed, byKey: map[string]client[C]{}}
	connections.mu.Lock()
	defer connections.mu.Unlock()
	connections.forgotten = append(connections.forgotten, c.forget)
	return c
}

// Get returns the client of a connection by its key, or false if the connection has no credentials. After a change of
// the credentials it returns a new client.
func (c *Clients[C]) Get(key string) (C, bool) {
	x, ok := c.connections.get(key)
	if known := c.opened(key); known.hash == x.hash { // both are zero without credentials
		return known.of, ok
	}
	opened, err := c.open(key, x.creds) // without the lock, because a network may have many certificates
	if err != nil {                     // cannot happen: Set validated the credentials
		return opened, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.byKey[key]; known.hash == x.hash { // another caller has opened it in the meantime
		return known.of, true
	}
	c.byKey[key] = client[C]{of: opened, hash: x.hash}
	return opened, true
}

// opened returns the most recently opened client of a connection.
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
