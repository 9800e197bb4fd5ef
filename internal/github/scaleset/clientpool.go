// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaleset

import (
	"sync"
	"time"

	official "github.com/actions/scaleset"
)

// clientRest is how long an official client may be unused before it is dropped.
const clientRest = time.Minute

// pooledClient is an official client that is used by one call at a time, as a call holds
// its lock.
type pooledClient struct {
	client     *official.Client
	generation uint64 // of the tokens it may hold
}

// clientPool holds the official clients that no call uses. What was not needed for a while is
// dropped: at rest there are none.
type clientPool struct {
	mu       sync.Mutex
	idle     []*pooledClient // the last used is the last
	used     int
	peak     int // the most used at once since the last sweep
	sweeping bool
}

// get returns an idle client; nil when there is none.
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

// put ends what take began; nil for a client that couldn't be made.
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

// sweep keeps as many as were needed at once since the last time.
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
