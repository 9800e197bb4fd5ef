// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"sync"

	"github.com/corral-dev/corral/internal/github/scaleset"
)

// Source has the credentials of the connections that are in use; *scaleset.Registry is one.
type Source interface {
	Get(key string) (*scaleset.Client, bool)
}

// Registry has one Client per connection that is asked for, with the credentials that the source
// has. It is safe for concurrent use.
type Registry struct {
	source  Source
	options ClientOptions

	mu      sync.Mutex
	clients map[string]*Client
}

// NewRegistry returns a registry whose clients share the options' transport.
func NewRegistry(source Source, o ClientOptions) *Registry {
	return &Registry{source: source, options: o.withDefaults(), clients: map[string]*Client{}}
}

// Get returns the client of a connection, by NAMESPACE/NAME; false while the connection has no
// credentials that are in use. It is another client once the credentials changed.
func (r *Registry) Get(key string) (*Client, bool) {
	known, ok := r.source.Get(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !ok {
		if _, had := r.clients[key]; had {
			delete(r.clients, key)
			remainingCalls.DeleteLabelValues(key)
		}
		return nil, false
	}
	if c := r.clients[key]; c != nil && c.creds.Hash() == known.Hash() {
		return c, true
	}
	options := r.options
	options.Name = key
	c, err := NewClient(known.Credentials(), options)
	if err != nil { // the scale-set client took the same credentials
		return nil, false
	}
	r.clients[key] = c
	return c, true
}
