// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// rightWithin is how long a right signature speaks against wrong ones: those are somebody else's then.
const rightWithin = 10 * time.Minute

// Signatures remembers, of connections that take in events, when one came that their secret signed, and when one that it didn't. It is lost
// with the process, and each replica knows of what it was sent. The zero value is ready for use.
type Signatures struct {
	mu    sync.Mutex
	known map[types.NamespacedName]signatures
}

// signatures are when the last of each kind came; zero for never.
type signatures struct{ right, wrong time.Time }

// note remembers an event of a connection that there is.
func (s *Signatures) note(connection types.NamespacedName, right bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[types.NamespacedName]signatures{}
	}
	last := s.known[connection]
	if right {
		last.right = now
	} else {
		last.wrong = now
	}
	s.known[connection] = last
}

// Wrong says whether the secret seems to be another than GitHub's: the last event has a wrong signature or none, and none in the ten minutes before
// it has a right one. Anybody can send such events, so it is a guess.
func (s *Signatures) Wrong(connection types.NamespacedName) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.known[connection]
	return last.wrong.Sub(last.right) > rightWithin
}

// Forget drops what is known of a connection that is gone, and its metrics.
func (s *Signatures) Forget(connection types.NamespacedName) {
	events.DeletePartialMatch(map[string]string{"namespace": connection.Namespace, "connection": connection.Name})
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, connection)
}
