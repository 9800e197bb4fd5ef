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
	// longestWindow and longestPeriod are the longest that a pool may declare.
	longestWindow, longestPeriod = time.Hour, 30 * time.Minute
)

// History is what was wanted and done of late: what behavior looks back at. It is bounded. The zero one knows nothing.
type History struct {
	wanted []span   // in the order of time; each ends where the next begins
	done   []change // in the order of time
	number *int32   // that was given last
}

// span is a time in which numbers were wanted.
type span struct {
	from        time.Time
	least, most int32
}

// change is what was done.
type change struct {
	at time.Time
	by int32
}

// Rebuilt is the history of a pool whose own is lost: as if the number of its last decision had been wanted up to now. Windows begin
// anew, so that a restart makes nothing faster. Without a decision it is empty.
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

// Clone returns a copy that changes alone.
func (h *History) Clone() History {
	c := *h
	c.wanted, c.done = slices.Clone(h.wanted), slices.Clone(h.done)
	return c
}

// want notes what is wanted from now on.
func (h *History) want(n int32, now time.Time) {
	h.settle(now)
	if last := len(h.wanted) - 1; last < 0 || h.wanted[last].least != n || h.wanted[last].most != n {
		h.wanted = append(h.wanted, span{from: now, least: n, most: n})
	}
	// The first goes when it ended before the longest window.
	for len(h.wanted) > 1 && !h.wanted[1].from.After(now.Add(-longestWindow)) {
		h.wanted = h.wanted[1:]
	}
	if len(h.wanted) > mostKept {
		h.wanted = mergeSpans(h.wanted)
	}
}

// settle has nothing be later than now: the clock may have been put back.
func (h *History) settle(now time.Time) {
	for i := range h.wanted {
		h.wanted[i].from = earlier(h.wanted[i].from, now)
	}
	for i := range h.done {
		h.done[i].at = earlier(h.done[i].at, now)
	}
}

// mergeSpans makes one of the two neighbors that are the shortest together; what is wanted now stays as it is.
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

// wantedIn returns the smallest and the largest number wanted in a time up to now, and when a part of it is to be forgotten.
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

// did notes a change.
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

// mergeChanges makes one of the two neighbors that are the closest, at the later time.
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

// changedIn returns by how much the number rose in a time up to now, fell if negative, and when a part of it is to be forgotten.
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
