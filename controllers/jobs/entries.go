// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"slices"
	"sync/atomic"

	"github.com/corral-dev/corral/internal/reservation"
)

// Jobs that the ledgers of pools know, those that ended included. A ledger is bounded, and a namespace may have any number of pools.
const (
	// maxEntries is how many a namespace's pools know together.
	maxEntries = 4 * reservation.MaxJobs
	// MaxAllEntries is how many those of all namespaces know.
	MaxAllEntries = 4 * maxEntries
	// fewEntries a namespace's pools may always know, whatever others know.
	fewEntries = 8_192
	// EntrySize is about what one takes in memory, in bytes.
	EntrySize = 200
	// entriesAhead is how many may be entered before they are counted again.
	entriesAhead = 1_024
)

// entries counts the jobs that the ledgers of a space know. That some are forgotten is noted at the next count.
type entries struct {
	counted int64
	room    int // how many more may be entered before they are counted again
}

// note counts entries that came or went, and has them counted again.
func (e *entries) note(n int, all *atomic.Int64) {
	e.counted += int64(n)
	e.room = 0
	all.Add(int64(n))
}

// hasRoom reports whether another job may be entered in a ledger of the space. When there are too many, most of those that ended are forgotten first.
func (s *space) hasRoom() bool {
	if s.entries.room > 0 {
		s.entries.room--
		return true
	}
	room, ended := s.countRoom()
	if room == 0 && ended > maxEntries/8 { // so it is seldom done
		for _, p := range s.members {
			p.ledger.ForgetEnded(maxEntries / 16 / len(s.members))
		}
		room, _ = s.countRoom()
	}
	s.entries.room = min(entriesAhead, room)
	if room == 0 {
		return false
	}
	s.entries.room--
	return true
}

// hasRoomFor reports whether all jobs of a ledger that was written down may be entered.
func (s *space) hasRoomFor(jobs *reservation.Ledger) bool {
	n := jobs.Len()
	if s.entries.counted+int64(n) > fewEntries { // fewer need not be counted
		if room, _ := s.countRoom(); room < n {
			return false
		}
	}
	s.entries.note(n, &s.tracker.entries)
	return true
}

// fitting returns those of the jobs of a list that a pool knows or there is room for.
func (s *space) fitting(p *pool, jobs []reservation.Event) []reservation.Event {
	return slices.DeleteFunc(jobs, func(e reservation.Event) bool {
		isRefused := p.ledger.Has(e.ID) == 0 && !s.hasRoom()
		if isRefused {
			p.ledger.Refuse()
		}
		return isRefused
	})
}

// countRoom counts the entries of the space, and returns how many more there may be, and how many are of jobs that ended.
func (s *space) countRoom() (room, ended int) {
	total := 0
	for _, p := range s.members {
		total += p.ledger.Len()
		ended += p.ledger.Counts().Ended
	}
	s.entries.note(total-int(s.entries.counted), &s.tracker.entries)
	most := maxEntries
	if s.tracker.entries.Load() >= MaxAllEntries {
		most = fewEntries
	}
	return max(0, most-total), ended
}
