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
	// Ask is true when GitHub's count is from before some runner had to be connected, or may have one instead that is gone.
	Ask bool
	// Next is the time until the next runner has to be connected; 0 for none.
	Next time.Duration
	// Sure are idle runners that GitHub surely saw.
	Sure []Runner
}

// Online is how many runners GitHub counted as online.
type Online struct {
	Count int
	// At is when it counted, Unsettled when some runner was last on its way out, which GitHub may count, too.
	At, Unsettled time.Time
}

// countAgain is how old a count has to be that nothing but runners on their way out makes doubtful.
const countAgain = time.Minute

// Connections compares idle runners and the number of busy ones with how many runners
// GitHub counted as online. A runner has to be online by its deadline after
// its container started.
func Connections(idle []Runner, busy int, online Online, deadline time.Duration, now time.Time) Connected {
	var c Connected
	var old []Runner
	for _, r := range idle {
		due := r.Since.Add(deadline)
		switch {
		case !online.At.Before(due):
			old = append(old, r)
		case !now.Before(due):
			c.Ask = true
		default:
			c.wait(due.Sub(now))
		}
	}
	if c.Ask {
		return Connected{Ask: true}
	}
	// Those that aren't due may be online too: then one too few is missing, until their time comes.
	c.Suspects = suspects(old, len(old)+busy-online.Count)
	switch age := now.Sub(online.At); {
	case len(old) == 0 || c.Suspects.Missing > 0:
	case !online.At.After(online.Unsettled) && age >= countAgain:
		c.Ask = true // one that is gone by now may have been counted instead of one of them
	case !online.At.After(online.Unsettled):
		c.wait(countAgain - age)
	case len(idle)+busy <= online.Count:
		c.Sure = old
	}
	return c
}

// wait makes Next no later than that.
func (c *Connected) wait(d time.Duration) {
	if c.Next == 0 || d < c.Next {
		c.Next = d
	}
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
