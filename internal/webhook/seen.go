// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"crypto/sha256"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/corral-dev/corral/internal/share"
)

const (
	// seenMost is the maximum number of remembered events. One namespace may have a quarter of them. seenFor is how
	// long an event is remembered.
	seenMost = 65536
	seenFor  = 10 * time.Minute
	// quietFor is the minimum time between two log lines about the same kind of refusal.
	quietFor = 10 * time.Second
)

// seen remembers accepted events by their signatures, to recognize duplicates. When GitHub repeats an event, its body
// and thus its signature are the same. A sender can attach the GUID of an event to another body, but not its signature.
type seen struct {
	mu    sync.Mutex
	known *share.Map[sighting, time.Time] // when they were accepted
}

// sighting identifies an event of a connection. It contains no pointers, so that tens of thousands cost the garbage
// collector little.
type sighting [16]byte

func sightingOf(connection types.NamespacedName, signature [signatureSize]byte) sighting {
	sum := sha256.Sum256(append(signature[:], connection.String()...))
	return sighting(sum[:len(sighting{})])
}

func newSeen() *seen {
	return &seen{known: share.New[sighting, time.Time](seenMost, nil)}
}

func (s *seen) has(namespace string, event sighting, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.known.Get(namespace, event)
	return ok && now.Sub(at) < seenFor
}

func (s *seen) add(namespace string, event sighting, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.Push(namespace, event, now)
}

// quiet limits log lines during a flood of requests.
type quiet struct {
	mu   sync.Mutex
	last map[result]time.Time
}

// speaks reports whether a request with this result may be logged now.
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
