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

// Memory limits in bytes, for all connections together. The connections of one namespace can use a quarter.
const (
	// AnswerMemory is for answers that are being read and decoded, and for messages whose events are not recorded yet.
	AnswerMemory = 192 << 20
	// KeptMemory is for cached answers: listings, pages for conditional requests, and the last events of runners.
	KeptMemory = 64 << 20
	// ConnectionMemory is roughly what a connection needs in addition: its clients, their tokens, and the webhook
	// deliveries that Corral remembers.
	ConnectionMemory = 3 << 20
	// timesDecoded is the memory that decoding an answer takes, as a multiple of its size.
	timesDecoded = 3
)

// ErrCrowded is the error of an answer that Corral stopped reading to free memory for other answers.
var ErrCrowded = errors.New("the answers that this namespace's connections are sent are too large together")

// memory limits the memory for answers.
type memory struct{ answers, kept *share.Bytes }

func newMemory() *memory {
	return &memory{answers: share.NewBytes(AnswerMemory, AnswerMemory/4), kept: share.NewBytes(KeptMemory, KeptMemory/4)}
}

// tenant returns the namespace from a connection's key.
func tenant(key string) string {
	namespace, _, _ := strings.Cut(key, "/")
	return namespace
}

// Keep returns a Hold for cached answers. lose is called when other answers need the memory. The caller must then drop
// its answers.
func (o Options) Keep(lose func()) *share.Hold { return o.memory.kept.Hold(o.tenant, lose) }

// Retain reserves memory for a decoded response that waits to be processed. It returns false if too many bytes are
// already reserved, for its namespace or in total, because half of the memory stays free for responses that are being
// read.
func (o Options) Retain(bytes int64) (h *share.Hold, ok bool) {
	h = o.memory.answers.Hold(o.tenant, func() {})
	if h.Add(bytes) && h.Keep(AnswerMemory/8, AnswerMemory/2) {
		return h, true
	}
	h.Leave()
	return nil, false
}

// Kept is a cached value. It can be dropped at any time to free memory.
type Kept[T any] struct {
	value atomic.Pointer[T]
	hold  *share.Hold
}

// Keep caches a value of the given size in bytes.
func Keep[T any](o Options, value T, size int) *Kept[T] {
	k := &Kept[T]{}
	k.value.Store(&value)
	itself := weak.Make(k) // lets the garbage collector free the value together with its client
	k.hold = o.Keep(func() {
		if k := itself.Value(); k != nil {
			k.value.Store(nil)
		}
	})
	runtime.AddCleanup(k, (*share.Hold).Leave, k.hold)
	k.hold.Add(int64(size))
	return k
}

// Get returns the value, and false if it was dropped.
func (k *Kept[T]) Get() (value T, ok bool) {
	p := k.value.Load()
	if p != nil {
		value = *p
	}
	return value, p != nil
}

// Leave drops the value and frees its memory.
func (k *Kept[T]) Leave() { k.hold.Leave() }
