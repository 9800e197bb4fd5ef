// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package poolstatus

import (
	"slices"
	"strings"
	"time"
)

// Runner is a runner with the time when it entered its state.
type Runner struct {
	Name  string
	Since time.Time
}

// Suspects are runners, some of which seem to be missing on GitHub. GitHub's counts contain no names and are sometimes
// wrong, so Corral looks up suspects until it finds the missing runners.
type Suspects struct {
	// Names of all suspects, the longest in their state first. Empty if none is missing.
	Names []string
	// Missing is the number of missing runners.
	Missing int
}

// Connected holds the conclusions from GitHub's count of online runners about idle runners.
type Connected struct {
	// Suspects are idle runners that GitHub may not see.
	Suspects Suspects
	// Ask is true if GitHub's count is older than the deadline of a runner to connect, or may include a runner that is gone.
	Ask bool
	// Next is the time until the next runner must be connected; 0 for none.
	Next time.Duration
	// Sure lists idle runners that GitHub has certainly seen.
	Sure []Runner
}

// Online is the number of runners that GitHub counted as online.
type Online struct {
	Count int
	// At is the time of the count. Unsettled is the last time when a runner was leaving, which GitHub may still count.
	At, Unsettled time.Time
}

// countAgain is the age after which a count is repeated if only leaving runners make it doubtful.
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
	// Runners before their deadline may be online too. Then the number of missing runners is too low until their deadline.
	c.Suspects = suspects(old, len(old)+busy-online.Count)
	switch age := now.Sub(online.At); {
	case len(old) == 0 || c.Suspects.Missing > 0:
	case !online.At.After(online.Unsettled) && age >= countAgain:
		c.Ask = true // the count may include a runner that is gone by now instead of one of these
	case !online.At.After(online.Unsettled):
		c.wait(countAgain - age)
	case len(idle)+busy <= online.Count:
		c.Sure = old
	}
	return c
}

// wait limits Next to a time.
func (c *Connected) wait(d time.Duration) {
	if c.Next == 0 || d < c.Next {
		c.Next = d
	}
}

// Overdue returns runners that count as busy although GitHub counted fewer busy runners
// at a time: the completion of a job may have been lost.
// It does not suspect runners that got their job just before the count.
func Overdue(busy []Runner, counted int, at time.Time) Suspects {
	old := slices.DeleteFunc(slices.Clone(busy), func(r Runner) bool { return at.Before(r.Since.Add(Settle)) })
	return suspects(old, len(old)-counted)
}

// suspects returns the runners among which some are missing.
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
