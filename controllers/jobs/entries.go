// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"slices"
	"sync/atomic"

	"github.com/corral-dev/corral/internal/reservation"
)

// Limits for the jobs in the ledgers of pools, including ended ones. Each ledger is limited, but a namespace may have any
// number of pools.
const (
	// maxEntries is the limit for all pools of a namespace together.
	maxEntries = 4 * reservation.MaxJobs
	// MaxAllEntries is the limit for all namespaces together.
	MaxAllEntries = 4 * maxEntries
	// fewEntries is the number of jobs that the pools of a namespace may always have, however many jobs other namespaces
	// have.
	fewEntries = 8_192
	// EntrySize is the approximate size of an entry in memory, in bytes.
	EntrySize = 200
	// entriesAhead is how many entries may be added before they are counted again.
	entriesAhead = 1_024
)

// entries counts the jobs in the ledgers of a space. Removed entries are noticed at the next count.
type entries struct {
	counted int64
	room    int // how many more may be added before the next count
}

// note adds n, which may be negative, to the count, and forces a new count before the next job is added.
func (e *entries) note(n int, all *atomic.Int64) {
	e.counted += int64(n)
	e.room = 0
	all.Add(int64(n))
}

// hasRoom reports whether another job may be added to a ledger of the space. If there are too many jobs, it first drops many
// of the ended ones.
func (s *space) hasRoom() bool {
	if s.entries.room > 0 {
		s.entries.room--
		return true
	}
	room, ended, most := s.countRoom()
	if room == 0 && ended > most/8 { // only if there are many, so that this happens rarely
		for _, p := range s.members {
			p.ledger.ForgetEnded(most / 16 / len(s.members))
		}
		room, _, _ = s.countRoom()
	}
	s.entries.room = min(entriesAhead, room)
	if room == 0 {
		return false
	}
	s.entries.room--
	return true
}

// hasRoomFor reports whether all jobs of a stored ledger may be added. If so, it adds them to the count.
func (s *space) hasRoomFor(jobs *reservation.Ledger) bool {
	n := jobs.Len()
	if s.entries.counted+int64(n) > fewEntries { // smaller numbers need no count
		if room, _, _ := s.countRoom(); room < n {
			return false
		}
	}
	s.entries.note(n, &s.tracker.entries)
	return true
}

// fitting returns the jobs of a list that the pool already has or for which there is room.
func (s *space) fitting(p *pool, jobs []reservation.Event) []reservation.Event {
	return slices.DeleteFunc(jobs, func(e reservation.Event) bool {
		isRefused := p.ledger.Has(e.ID) == 0 && !s.hasRoom()
		if isRefused {
			p.ledger.Refuse()
		}
		return isRefused
	})
}

// countRoom counts the entries of the space. It returns how many more there may be, how many are of ended jobs, and how many
// there may be in total.
func (s *space) countRoom() (room, ended, most int) {
	total := 0
	for _, p := range s.members {
		total += p.ledger.Len()
		ended += p.ledger.Counts().Ended
	}
	s.entries.note(total-int(s.entries.counted), &s.tracker.entries)
	most = maxEntries
	if s.tracker.entries.Load() >= MaxAllEntries {
		most = fewEntries
	}
	return max(0, most-total), ended, most
}
