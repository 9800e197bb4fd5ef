// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"sync"
	"time"

	official "github.com/actions/scaleset"
)

// clientRest is how long an official client may be idle before it is dropped.
const clientRest = time.Minute

// pooledClient is an official client. Only one call uses it at a time, because each call holds its lock.
type pooledClient struct {
	client     *official.Client
	generation uint64 // the generation of the tokens that the client may hold
}

// clientPool holds idle official clients. It drops clients that were not needed for a while, so that an idle connection
// has none.
type clientPool struct {
	mu       sync.Mutex
	idle     []*pooledClient // the most recently used is last
	used     int
	peak     int // maximum of used since the last sweep
	sweeping bool
}

// get returns an idle client, or nil if there is none.
func (s *clientPool) get() *pooledClient {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used++
	s.peak = max(s.peak, s.used)
	if len(s.idle) == 0 {
		return nil
	}
	m := s.idle[len(s.idle)-1]
	s.idle[len(s.idle)-1] = nil
	s.idle = s.idle[:len(s.idle)-1]
	return m
}

// put returns a client to the pool. It is called once after each get, with nil if the client could not be created.
func (s *clientPool) put(m *pooledClient) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used--
	if m == nil {
		return
	}
	s.idle = append(s.idle, m)
	if !s.sweeping {
		s.sweeping = true
		time.AfterFunc(clientRest, s.sweep)
	}
}

// sweep drops idle clients, so that there remain as many clients as were in use at once since the last sweep.
func (s *clientPool) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	kept := min(len(s.idle), max(0, s.peak-s.used))
	s.idle = append([]*pooledClient(nil), s.idle[len(s.idle)-kept:]...)
	s.peak = s.used
	if s.sweeping = kept > 0; s.sweeping {
		time.AfterFunc(clientRest, s.sweep)
	}
}
