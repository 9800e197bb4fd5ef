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

// Suspects are runners of which GitHub seems to miss some. It counts and does not name, and its counts are wrong at times:
// they are to be looked up until those that are missing are found.
type Suspects struct {
	// Names of all of them, the longest in their state first. None if none is missing.
	Names []string
	// Missing is how many of them are missing.
	Missing int
}

// Connected is what GitHub's count of online runners says about those that are idle.
type Connected struct {
	// Suspects are idle runners that GitHub may not see.
	Suspects Suspects
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
	c.Suspects = suspects(old, len(old)+busy-online)
	return c
}

// Overdue returns runners that are taken for busy although GitHub counted fewer as busy
// at a time: the completion of a job may have been lost.
// Those that got their job just before GitHub counted aren't suspected.
func Overdue(busy []Runner, counted int, at time.Time) Suspects {
	old := slices.DeleteFunc(slices.Clone(busy), func(r Runner) bool { return at.Before(r.Since.Add(Settle)) })
	return suspects(old, len(old)-counted)
}

// suspects returns the runners of which so many are missing.
func suspects(runners []Runner, missing int) Suspects {
	if missing <= 0 {
		return Suspects{}
	}
	slices.SortFunc(runners, func(a, b Runner) int {
		if d := a.Since.Compare(b.Since); d != 0 {
			return d
		}
		return strings.Compare(a.Name, b.Name)
	})
	s := Suspects{Missing: missing}
	for _, r := range runners {
		s.Names = append(s.Names, r.Name)
	}
	return s
}
