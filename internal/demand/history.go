// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"math"
	"slices"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

const (
	// mostKept bounds each list of a History. Beyond it, neighbors are merged.
	mostKept = 64
	// longestWindow and longestPeriod are the maxima that a pool may declare.
	longestWindow, longestPeriod = time.Hour, 30 * time.Minute
)

// History holds recently wanted numbers and changes, which behavior uses. Its size is limited. The zero value is empty.
type History struct {
	wanted []span   // in order of time; each ends where the next begins
	done   []change // in order of time
	number *int32   // the last result
}

// span is a time span with the wanted numbers.
type span struct {
	from        time.Time
	least, most int32
}

// change is a change of the number.
type change struct {
	at time.Time
	by int32
}

// Rebuilt returns a history for a pool that has lost its own, as if the number of its last decision had been wanted until now. Windows
// start again, so that a restart makes no change faster. Without a decision it is empty.
func Rebuilt(last *v1alpha1.Decision, now time.Time) History {
	if last == nil {
		return History{}
	}
	h := History{wanted: []span{{from: earlier(last.Time.Time, now), least: last.Desired, most: last.Desired}}}
	before := int32(0)
	if last.Before != nil {
		before = last.Before.Desired
	}
	h.did(before, last.Desired, earlier(last.Time.Time, now))
	h.number = new(last.Desired)
	return h
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// Clone returns an independent copy.
func (h *History) Clone() History {
	c := *h
	c.wanted, c.done = slices.Clone(h.wanted), slices.Clone(h.done)
	return c
}

// want records the number that is wanted from now on.
func (h *History) want(n int32, now time.Time) {
	h.settle(now)
	if last := len(h.wanted) - 1; last < 0 || h.wanted[last].least != n || h.wanted[last].most != n {
		h.wanted = append(h.wanted, span{from: now, least: n, most: n})
	}
	// Drop the first span if it ended before the longest window.
	for len(h.wanted) > 1 && !h.wanted[1].from.After(now.Add(-longestWindow)) {
		h.wanted = h.wanted[1:]
	}
	if len(h.wanted) > mostKept {
		h.wanted = mergeSpans(h.wanted)
	}
}

// settle moves later times to now, because the clock may have been set back.
func (h *History) settle(now time.Time) {
	for i := range h.wanted {
		h.wanted[i].from = earlier(h.wanted[i].from, now)
	}
	for i := range h.done {
		h.done[i].at = earlier(h.done[i].at, now)
	}
}

// mergeSpans merges the two neighbors with the shortest total time. The currently wanted number does not change.
func mergeSpans(all []span) []span {
	best, shortest := 0, time.Duration(math.MaxInt64)
	for i := range len(all) - 2 {
		if d := all[i+2].from.Sub(all[i].from); d < shortest {
			best, shortest = i, d
		}
	}
	a, b := all[best], all[best+1]
	return slices.Concat(all[:best], []span{{from: a.from, least: min(a.least, b.least), most: max(a.most, b.most)}}, all[best+2:])
}

// wantedIn returns the smallest and the largest number wanted in a time span up to now, and when the result may change.
func (h *History) wantedIn(window time.Duration, now time.Time) (least, most int32, next time.Duration) {
	last := h.wanted[len(h.wanted)-1]
	least, most = last.least, last.most
	for i, s := range h.wanted[:len(h.wanted)-1] {
		left := h.wanted[i+1].from.Add(window).Sub(now)
		if left <= 0 {
			continue
		}
		least, most, next = min(least, s.least), max(most, s.most), sooner(next, left)
	}
	return least, most, next
}

// did records a change.
func (h *History) did(before, number int32, now time.Time) {
	if number != before {
		h.done = append(h.done, change{at: now, by: number - before})
	}
	for len(h.done) > 0 && !h.done[0].at.After(now.Add(-longestPeriod)) {
		h.done = h.done[1:]
	}
	if len(h.done) > mostKept {
		h.done = mergeChanges(h.done)
	}
}

// mergeChanges merges the two closest neighbors, at the later time.
func mergeChanges(all []change) []change {
	best, shortest := 0, time.Duration(math.MaxInt64)
	for i := range len(all) - 1 {
		if d := all[i+1].at.Sub(all[i].at); d < shortest {
			best, shortest = i, d
		}
	}
	by := min(max(int64(all[best].by)+int64(all[best+1].by), math.MinInt32), math.MaxInt32)
	return slices.Concat(all[:best], []change{{at: all[best+1].at, by: int32(by)}}, all[best+2:]) //nolint:gosec // it is bounded
}

// changedIn returns by how much the number rose (or fell, if negative) in a time span up to now, and when the result may change.
func (h *History) changedIn(period time.Duration, now time.Time) (risen int64, next time.Duration) {
	for _, c := range h.done {
		left := c.at.Add(period).Sub(now)
		if left <= 0 {
			continue
		}
		risen, next = risen+int64(c.by), sooner(next, left)
	}
	return risen, next
}
