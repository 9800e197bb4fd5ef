// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"crypto/sha256"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// seenMost is half of how many events are remembered, and seenFor half of how long at most.
	seenMost = 16384
	seenFor  = 5 * time.Minute
	// quietFor is the time between two lines of the log for one kind of refusal.
	quietFor = 10 * time.Second
)

// seen remembers the events that the job tracker has, by their signatures. GitHub repeats an event's GUID and its body, so the signature
// too, and unlike the GUID nobody else can put it on something else.
type seen struct {
	mu    sync.Mutex
	known generations[sighting, struct{}]
}

// sighting stands for an event of a connection. It has no pointers, so tens of thousands of them cost next to nothing.
type sighting [16]byte

func sightingOf(connection types.NamespacedName, signature [signatureSize]byte) sighting {
	sum := sha256.Sum256(append(signature[:], connection.String()...))
	return sighting(sum[:len(sighting{})])
}

func newSeen() *seen {
	return &seen{known: generations[sighting, struct{}]{most: seenMost, lasts: seenFor}}
}

func (s *seen) has(event sighting, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.known.get(event, now)
	return ok
}

func (s *seen) add(event sighting, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.put(event, struct{}{}, now)
}

// quiet keeps a flood out of the log.
type quiet struct {
	mu   sync.Mutex
	last map[result]time.Time
}

// speaks reports whether it is time for another line.
func (q *quiet) speaks(r result, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.last == nil {
		q.last = map[result]time.Time{}
	}
	if last, ok := q.last[r]; ok && now.Sub(last) < quietFor {
		return false
	}
	q.last[r] = now
	return true
}
