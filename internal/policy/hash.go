// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
)

// hash is a SHA-256 over numbers and texts, each with its length, so that none runs into the next.
// What it is told of an input must be all that is in it.
type hash struct{ buffer []byte }

func newHash() *hash { return &hash{buffer: make([]byte, 0, 1024)} }

func (h *hash) text(texts ...string) {
	for _, t := range texts {
		h.buffer = binary.AppendUvarint(h.buffer, uint64(len(t)))
		h.buffer = append(h.buffer, t...)
	}
}

func (h *hash) sum() [sha256.Size]byte { return sha256.Sum256(h.buffer) }

func (h *hash) number(numbers ...int64) {
	for _, n := range numbers {
		h.buffer = binary.AppendVarint(h.buffer, n)
	}
}

func (h *hash) runners(r Runners) {
	h.number(int64(r.Total), int64(r.Pending), int64(r.Idle), int64(r.Busy), int64(r.Finished), int64(r.Failed), int64(r.Outdated))
}

func (h *hash) usage(u *Usage) {
	h.number(int64(u.Granted))
	h.group(&u.All)
	h.group(&u.Namespace)
	h.group(&u.Connection)
	h.number(int64(len(u.Labels)))
	for _, name := range slices.Sorted(maps.Keys(u.Labels)) {
		group := u.Labels[name]
		h.text(name)
		h.group(&group)
	}
}

func (h *hash) group(g *Group) {
	h.number(int64(g.Granted), int64(g.Pools), int64(g.Claimed), int64(g.Wanting), int64(g.Largest), int64(len(g.Members)))
	for i := range g.Members {
		m := &g.Members[i]
		h.text(m.Namespace, m.Name)
		h.number(int64(m.Granted), int64(m.Wanted))
	}
}

func (h *hash) change(c Change) {
	h.text(c.From, c.To, c.Phase, c.Strategy)
	h.number(c.Since, int64(c.Updated), int64(c.MaxSurge), int64(c.MaxUnavailable), int64(c.Canary))
}
