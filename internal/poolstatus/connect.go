// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package poolstatus

import (
	"slices"
	"strings"
	"time"
)

// Runner is a runner that is in its state since a time.
type Runner struct {
	Name  string
	Since time.Time
}

// Connected is what GitHub's count of online runners says about those that are idle.
type Connected struct {
	// Missing names runners that GitHub may not see, the longest idle first. GitHub counts
	// and does not name, and its counts are wrong at times: each is to be looked up.
	Missing []string
	// Ask is true when GitHub's count is from before some runner had to be connected.
	Ask bool
	// Next is the time until the next runner has to be connected; 0 for none.
	Next time.Duration
}

// Connections compares idle runners and the number of busy ones with how many runners
// GitHub counted as online at a time. A runner has to be online by its deadline after
// its container started.
func Connections(idle []Runner, busy, online int, counted time.Time, deadline time.Duration, now time.Time) Connected {
	var c Connected
	var old []Runner
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
	c.Missing = oldest(old, len(old)+busy-online)
	return c
}

// Suspects names runners that are taken for busy although GitHub counted fewer as busy
// at a time, the longest busy first: the completion of their job may have been lost.
// Those that got their job just before GitHub counted aren't suspected.
func Suspects(busy []Runner, counted int, at time.Time) []string {
	old := slices.DeleteFunc(slices.Clone(busy), func(r Runner) bool { return at.Before(r.Since.Add(Settle)) })
	return oldest(old, len(old)-counted)
}

// oldest names the first n of the runners that are longest in their state.
func oldest(runners []Runner, n int) []string {
	slices.SortFunc(runners, func(a, b Runner) int {
		if d := a.Since.Compare(b.Since); d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	})
	var names []string
	for _, r := range runners[:min(len(runners), max(0, n))] {
		names = append(names, r.Name)
	}
	return names
}
