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
	// rightWithin is how long wrong signatures are ignored after a correct one. They probably do not come from GitHub.
	rightWithin = 10 * time.Minute
	// wrongFor is how long Corral assumes after a wrong signature that GitHub uses another secret.
	wrongFor = time.Hour
)

// Signatures records when each connection last received an event with a correct and with a wrong signature. The data is
// lost with the process, and each replica only knows its own events. The zero value is ready for use.
type Signatures struct {
	mu    sync.Mutex
	known map[types.NamespacedName]signatures
}

// signatures holds the time of the last event of each kind; zero for never.
type signatures struct {
	right, wrong time.Time
	// secret is the SHA-256 of the secret with which the wrong signature was compared.
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

// MaxSecretBytes is the maximum size of a webhook's secret, because each request to the server is hashed with it.
const MaxSecretBytes = 1024

// SecretOf returns a webhook's secret from the data of a Secret; empty if there is none. Files from which Secrets are
// created usually end in a newline; GitHub's secrets do not.
func SecretOf(data map[string][]byte, key string) []byte { return bytes.TrimRight(data[key], "\r\n") }

// Wrong reports whether a connection's secret seems to differ from GitHub's: within the last hour, an event had a wrong
// signature or none, and no event in the ten minutes before it had a correct one. Anyone can send such events, so this
// is a guess. It also returns the SHA-256 of the compared secret.
func (s *Signatures) Wrong(connection types.NamespacedName, now time.Time) (secret [sha256.Size]byte, isWrong bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.known[connection]
	return last.secret, last.wrong.Sub(last.right) > rightWithin && now.Sub(last.wrong) < wrongFor
}

// Forget deletes the data of a deleted connection.
func (s *Signatures) Forget(connection types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, connection)
}
