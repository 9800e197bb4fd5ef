// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package github

import (
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"weak"

	"github.com/corral-dev/corral/internal/share"
)

// What GitHub's answers may take, in bytes, for all connections together. The connections of one namespace have a quarter.
const (
	// AnswerMemory is for answers that are being read and decoded, and for messages whose events are not recorded yet.
	AnswerMemory = 192 << 20
	// KeptMemory is for what is kept of answers: listings, pages that may be unchanged, and the last events of runners.
	KeptMemory = 64 << 20
	// ConnectionMemory is about what a connection takes beside that: its clients, their tokens, and what is remembered of its webhook's deliveries.
	ConnectionMemory = 3 << 20
	// timesDecoded is how many times its own size an answer takes while it is decoded.
	timesDecoded = 3
)

// ErrCrowded is the end of an answer that was not read to its end, as it made room for others.
var ErrCrowded = errors.New("the answers that this namespace's connections are sent are too large together")

// memory bounds what answers take.
type memory struct{ answers, kept *share.Bytes }

func newMemory() *memory {
	return &memory{answers: share.NewBytes(AnswerMemory, AnswerMemory/4), kept: share.NewBytes(KeptMemory, KeptMemory/4)}
}

// tenant returns the namespace of a connection's key.
func tenant(key string) string {
	namespace, _, _ := strings.Cut(key, "/")
	return namespace
}

// Keep returns a Hold of what is kept of answers.
func (o Options) Keep(lose func()) *share.Hold { return o.memory.kept.Hold(o.tenant, lose) }

// Retain returns a Hold of so many bytes for a decoded answer that waits to be processed. It returns false if too many bytes wait already, for its
// namespace or in total: half of the memory stays free for answers that are being read.
func (o Options) Retain(bytes int64) (h *share.Hold, ok bool) {
	h = o.memory.answers.Hold(o.tenant, func() {})
	if h.Add(bytes) && h.Keep(AnswerMemory/8, AnswerMemory/2) {
		return h, true
	}
	h.Leave()
	return nil, false
}

// Kept is something made of an answer, for as long as there is room for it.
type Kept[T any] struct {
	value atomic.Pointer[T]
	hold  *share.Hold
}

// Keep keeps a value of so many bytes.
func Keep[T any](o Options, value T, size int) *Kept[T] {
	k := &Kept[T]{}
	k.value.Store(&value)
	itself := weak.Make(k) // so that the value of a client that is dropped goes with it
	k.hold = o.Keep(func() {
		if k := itself.Value(); k != nil {
			k.value.Store(nil)
		}
	})
	runtime.AddCleanup(k, (*share.Hold).Leave, k.hold)
	k.hold.Add(int64(size))
	return k
}

// Get returns the value, unless others needed the room.
func (k *Kept[T]) Get() (value T, ok bool) {
	p := k.value.Load()
	if p != nil {
		value = *p
	}
	return value, p != nil
}

// Leave makes room: the value is no longer kept.
func (k *Kept[T]) Leave() { k.hold.Leave() }
