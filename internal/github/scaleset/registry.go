// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"sync"
	"time"
)

// afterlife is how long a dropped connection's client still serves, so that clean-up
// on GitHub works when a connection is deleted together with its pools.
const afterlife = time.Hour

// Registry holds one Client per connection. It is safe for concurrent use.
type Registry struct {
	options Options

	mu      sync.Mutex
	entries map[string]*entry
}

type entry struct {
	client  *Client
	dropped time.Time // zero while the connection is there
}

// NewRegistry returns an empty registry whose clients share the options' transport.
func NewRegistry(options Options) *Registry {
	return &Registry{options: options.withDefaults(), entries: map[string]*entry{}}
}

// Set gives a connection, by key, the client of these credentials. The client is
// replaced only if the credentials changed.
func (r *Registry) Set(key string, creds Credentials) (*Client, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweep()
	if e := r.entries[key]; e != nil && e.client.Hash() == creds.Hash() {
		e.dropped = time.Time{}
		return e.client, nil
	}
	client, err := NewClient(creds, r.options)
	if err != nil {
		return nil, err
	}
	r.entries[key] = &entry{client: client}
	return client, nil
}

// Get returns the client of a connection, also for an hour after Drop.
func (r *Registry) Get(key string) (*Client, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweep()
	e := r.entries[key]
	if e == nil {
		return nil, false
	}
	return e.client, true
}

// Drop marks a connection as gone.
func (r *Registry) Drop(key string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.entries[key]; e != nil && e.dropped.IsZero() {
		e.dropped = r.options.Now()
	}
}

func (r *Registry) sweep() {
	for key, e := range r.entries {
		if !e.dropped.IsZero() && r.options.Now().Sub(e.dropped) >= afterlife {
			delete(r.entries, key)
		}
	}
}
