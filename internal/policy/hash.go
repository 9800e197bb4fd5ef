// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"github.com/open-policy-agent/opa/v1/ast"
)

// hash is a SHA-256 over texts, each with its length, so that none runs into the next.
type hash struct{ buffer []byte }

func newHash() *hash { return &hash{buffer: make([]byte, 0, 1024)} }

func (h *hash) text(texts ...string) {
	for _, t := range texts {
		h.buffer = binary.AppendUvarint(h.buffer, uint64(len(t)))
		h.buffer = append(h.buffer, t...)
	}
}

func (h *hash) sum() [sha256.Size]byte { return sha256.Sum256(h.buffer) }

// term adds what a value says. Its text ends where a JSON value ends, so none runs into the next.
func (h *hash) term(t *ast.Term) {
	text, err := t.AppendText(h.buffer)
	if err != nil { // never, for what JSON can say
		text = append(h.buffer, t.String()...)
	}
	h.buffer = append(text, 0)
}

// id is the beginning of the hash, which is enough to tell decisions apart.
func (h *hash) id() string {
	sum := h.sum()
	return hex.EncodeToString(sum[:8])
}
