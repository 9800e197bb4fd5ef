// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"crypto/sha256"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// rightWithin is how long a right signature speaks against wrong ones that follow: those are somebody else's then.
	rightWithin = 10 * time.Minute
	// wrongFor is how long a wrong signature is believed to be GitHub's.
	wrongFor = time.Hour
)

// Signatures remembers, of connections that take in events, when one came that their secret signed, and when one that it didn't. It is lost
// with the process, and each replica knows of what it was sent. The zero value is ready for use.
type Signatures struct {
	mu    sync.Mutex
	known map[types.NamespacedName]signatures
}

// signatures are when the last of each kind came; zero for never.
type signatures struct {
	right, wrong time.Time
	// secret is the SHA-256 of the one that the wrong one was compared with.
	secret [sha256.Size]byte
}

func (s *Signatures) noteRight(connection types.NamespacedName, now time.Time) {
	s.change(connection, func(last *signatures) { last.right = now })
}

func (s *Signatures) noteWrong(connection types.NamespacedName, secret []byte, now time.Time) {
	s.change(connection, func(last *signatures) { last.wrong, last.secret = now, sha256.Sum256(secret) })
}

func (s *Signatures) change(connection types.NamespacedName, by func(*signatures)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[types.NamespacedName]signatures{}
	}
	last := s.known[connection]
	by(&last)
	s.known[connection] = last
}

// SecretOf returns a secret of a webhook from the data of a Secret; empty if there is none. Files that Secrets are made of end in a newline, as a
// rule; GitHub's secrets don't.
func SecretOf(data map[string][]byte, key string) []byte { return bytes.TrimRight(data[key], "\r\n") }

// Wrong says whether a connection's secret seems to be another than GitHub's: the last event, within an hour, has another signature or none,
// and none in the ten minutes before it has a right one. Anybody can send such events, so it is a guess. The secret that the event was
// compared with is told by its SHA-256.
func (s *Signatures) Wrong(connection types.NamespacedName, now time.Time) (secret [sha256.Size]byte, isIt bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.known[connection]
	return last.secret, last.wrong.Sub(last.right) > rightWithin && now.Sub(last.wrong) < wrongFor
}

// Forget drops what is known of a connection that is gone.
func (s *Signatures) Forget(connection types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, connection)
}
