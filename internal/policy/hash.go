// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"crypto/sha256"
	"encoding/binary"
)

// hash computes a SHA-256 hash over texts. Each text is preceded by its length, so that different lists of texts have
// different hashes.
type hash struct{ buffer []byte }

func newHash() *hash { return &hash{buffer: make([]byte, 0, 1024)} }

func (h *hash) text(texts ...string) {
	for _, t := range texts {
		h.buffer = binary.AppendUvarint(h.buffer, uint64(len(t)))
		h.buffer = append(h.buffer, t...)
	}
}

func (h *hash) sum() [sha256.Size]byte { return sha256.Sum256(h.buffer) }
