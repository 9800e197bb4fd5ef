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
	// mostKept is the maximum length of each list in a History. When a list gets longer, two neighboring entries are
	// merged.
	mostKept = 64
	// longestWindow and longestPeriod are the longest stabilization window and the longest policy period that a pool
	// may declare.
	longestWindow, longestPeriod = time.Hour, 30 * time.Minute
)

// History records the numbers of runners that were recently wanted, and the changes that were made. `scale.behavior` is
// evaluated against it. Its size is limited. The zero value is empty.
type History struct {
	wanted []span   // in order of time; each ends where the next begins
	done   []change // in order of time
	number *int32   // the number that Behave returned last; nil if there is none
}

// span is a period, with the smallest and the largest number that was wanted in it.
type span struct {
	from        time.Time
	least, most int32
}

// change records that the number of runners changed, and by how much.
type change struct {
	at time.Time
	by int32
}

// Rebuilt returns a history for a pool whose history was lost, for example by a restart. It assumes that the last
// decision's number has been wanted since that decision, so a restart never makes a change happen sooner. Without a
// decision, it returns an empty history.
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
	// Drop spans that ended before the longest window began.
	for len(h.wanted) > 1 && !h.wanted[1].from.After(now.Add(-longestWindow)) {
		h.wanted = h.wanted[1:]
	}
	if len(h.wanted) > mostKept {
		h.wanted = mergeSpans(h.wanted)
	}
}

// settle sets times in the future to now, because the clock may have been set back.
func (h *History) settle(now time.Time) {
	for i := range h.wanted {
		h.wanted[i].from = earlier(h.wanted[i].from, now)
	}
	for i := range h.done {
		h.done[i].at = earlier(h.done[i].at, now)
	}
}

// mergeSpans merges the two neighbors with the shortest total time. It keeps the last span, which has the currently
// wanted number, unchanged.
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

// wantedIn returns the smallest and the largest number that was wanted in the window up to now, and how long until the
// result may change (0 if it will not).
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

// did records that the number changed from before to number, and drops changes that are older than the longest period.
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

// mergeChanges merges the two neighbors that are closest in time into one change at the later time.
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

// changedIn returns by how much the number rose (or fell, if negative) in the period up to now, and how long until the
// result may change (0 if it will not).
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
