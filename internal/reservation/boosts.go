// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package reservation

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"
)

const (
	// maxTriggers is the maximum number of triggers that are tracked for a pool. Events of further triggers are
	// ignored.
	maxTriggers = 16
	// maxBoosts is the maximum number of active events of a trigger. Further events are ignored.
	maxBoosts = 1_000
	// formatBoosts is the first byte of the encoded form, before compression.
	formatBoosts = 2
)

// Boosts holds the active events of a pool's boosts. It is not safe for concurrent use.
type Boosts struct {
	until map[string]map[uint64]int64 // when each event ends, in Unix seconds, by trigger and by the hash of the delivery
}

// NewBoosts returns Boosts without events.
func NewBoosts() *Boosts { return &Boosts{until: map[string]map[uint64]int64{}} }

// Record adds an event of a trigger, which stays active until the given time. delivery identifies the event. Record
// reports whether it added the event: it ignores events that are known or over, and events beyond the limits.
func (s *Boosts) Record(trigger, delivery string, until, now time.Time) bool {
	if !until.After(now) {
		return false
	}
	events := s.until[trigger]
	if events == nil {
		if len(s.until) >= maxTriggers {
			return false
		}
		events = map[uint64]int64{}
		s.until[trigger] = events
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(delivery)) // never fails
	sum := h.Sum64()
	if _, known := events[sum]; known || len(events) >= maxBoosts {
		return false
	}
	events[sum] = until.Unix()
	return true
}

// Count returns the number of active events of a trigger, and when the first of them ends; the zero time if there are
// none.
func (s *Boosts) Count(trigger string, now time.Time) (n int, next time.Time) {
	for _, until := range s.until[trigger] {
		if until <= now.Unix() {
			continue
		}
		n++
		if t := time.Unix(until, 0); next.IsZero() || t.Before(next) {
			next = t
		}
	}
	return n, next
}

// Expire removes events that are over, and events of triggers for which keep returns false. It reports whether it
// removed any.
func (s *Boosts) Expire(keep func(trigger string) bool, now time.Time) bool {
	changed := false
	for name, events := range s.until {
		for sum, until := range events {
			if until <= now.Unix() {
				delete(events, sum)
				changed = true
			}
		}
		if len(events) == 0 || !keep(name) {
			changed = changed || len(events) > 0
			delete(s.until, name)
		}
	}
	return changed
}

// Merge adds the events of other Boosts of the same pool, within the limits, because DecodeBoosts rejects more. Events
// that end later take precedence over the other ones in other.
func (s *Boosts) Merge(other *Boosts) {
	for _, name := range slices.Sorted(maps.Keys(other.until)) {
		if s.until[name] == nil && len(s.until) >= maxTriggers {
			continue
		}
		if s.until[name] == nil {
			s.until[name] = map[uint64]int64{}
		}
		mergeEvents(s.until[name], other.until[name])
	}
}

// mergeEvents adds the events of from to events, within maxBoosts.
func mergeEvents(events, from map[uint64]int64) {
	latestFirst := slices.SortedFunc(maps.Keys(from), func(a, b uint64) int {
		return cmp.Or(cmp.Compare(from[b], from[a]), cmp.Compare(a, b))
	})
	for _, sum := range latestFirst {
		if _, known := events[sum]; known || len(events) < maxBoosts {
			events[sum] = from[sum]
		}
	}
}

// Encode returns the events in compressed form: gzip of a format byte, the number of triggers and, for each trigger,
// its name and its events. An event is the hash of its delivery and the Unix time at which it ends.
func (s *Boosts) Encode() []byte {
	text := []byte{formatBoosts}
	text = binary.AppendUvarint(text, uint64(len(s.until)))
	for _, name := range slices.Sorted(maps.Keys(s.until)) {
		events := s.until[name]
		text = appendString(text, name)
		text = binary.AppendUvarint(text, uint64(len(events)))
		for _, sum := range slices.Sorted(maps.Keys(events)) {
			text = binary.AppendUvarint(text, sum)
			text = binary.AppendUvarint(text, uint64(max(events[sum], 0)))
		}
	}
	return pack(text)
}

// DecodeBoosts decodes the result of Encode.
func DecodeBoosts(data []byte) (*Boosts, error) {
	text, err := unpack(data)
	if err != nil {
		return nil, fmt.Errorf("reading boosts: %w", err)
	}
	s, r := NewBoosts(), &reader{text: text}
	if f := r.byte(); r.err == nil && f != formatBoosts {
		return nil, fmt.Errorf("reading boosts: unknown format %d", f)
	}
	triggers := r.number(maxTriggers)
	for i := uint64(0); i < triggers && r.err == nil; i++ {
		name, events := r.string(maxName), map[uint64]int64{}
		n := r.number(maxBoosts)
		for k := uint64(0); k < n && r.err == nil; k++ {
			events[r.number(1<<64-1)] = int64(r.number(1 << 40)) //nolint:gosec // it is bounded
		}
		s.until[name] = events
	}
	if r.err != nil {
		return nil, fmt.Errorf("reading boosts: %w", r.err)
	}
	return s, nil
}
