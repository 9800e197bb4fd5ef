// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package poolstatus

import (
	"slices"
	"strings"
	"time"
)

// Idle is a runner whose container runs since a time and that has no job.
type Idle struct {
	Name  string
	Since time.Time
}

// Connected is what GitHub's count of online runners says about those that are idle.
type Connected struct {
	// Missing names runners that GitHub doesn't see, the longest idle first. GitHub counts
	// and does not name, so it may be a runner in good health instead of one that isn't:
	// it is deregistered before it ends, and replaced.
	Missing []string
	// Ask is true when GitHub's count is from before some runner had to be connected.
	Ask bool
	// Next is the time until the next runner has to be connected; 0 for none.
	Next time.Duration
}

// Connections compares idle runners and the number of busy ones with how many runners
// GitHub counted as online at a time. A runner has to be online by its deadline after
// its container started.
func Connections(idle []Idle, busy, online int, counted time.Time, deadline time.Duration, now time.Time) Connected {
	var c Connected
	var old []Idle
	for _, r := range idle {
		due := r.Since.Add(deadline)
		switch {
		case !counted.Before(due):
			old = append(old, r)
		case !now.Before(due):
			c.Ask = true
		default:
			if left := due.Sub(now); c.Next == 0 || left < c.Next {
				c.Next = left
			}
		}
	}
	if c.Ask {
		return Connected{Ask: true}
	}
	// Those that aren't due may be online too: then one too few is missing, until their time comes.
	missing := min(len(old), max(0, len(old)+busy-online))
	slices.SortFunc(old, func(a, b Idle) int {
		if d := a.Since.Compare(b.Since); d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	})
	for _, r := range old[:missing] {
		c.Missing = append(c.Missing, r.Name)
	}
	return c
}
