// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package poolstatus

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Runner is a runner with the time when it entered its state.
type Runner struct {
	Name  string
	Since time.Time
}

// Suspects is a group of runners. Some of them seem to be missing on GitHub. GitHub's counts contain no names and are
// sometimes wrong, so Corral looks up individual runners until it has found the missing ones.
type Suspects struct {
	// Names lists all suspects, the longest in their state first. It is empty if no runner is missing.
	Names []string
	// Missing is the number of missing runners.
	Missing int
}

// Connected is the result of comparing the idle runners with GitHub's count of online runners.
type Connected struct {
	// Suspects holds the idle runners past their deadline if GitHub counts too few online runners.
	Suspects Suspects
	// Ask is true if Corral should request a newer count: the count is older than the connect deadline of an idle runner, or
	// it may include a runner that is gone.
	Ask bool
	// Next is the time until the comparison must be repeated, because a runner reaches its deadline or the count becomes too
	// old; 0 for none.
	Next time.Duration
	// Sure lists idle runners that GitHub certainly counted as online.
	Sure []Runner
}

// Online is GitHub's count of online runners.
type Online struct {
	Count int
	// At is the time of the count. Unsettled is the last time at which a runner was ending, because GitHub may still count
	// such a runner.
	At, Unsettled time.Time
}

// countAgain is the age at which Corral requests a new count if ending runners are the only reason to doubt the count.
const countAgain = time.Minute

// Connections compares the idle runners, and the number of busy ones, with GitHub's count of online runners. A runner
// must be online by its deadline, which is counted from the time when it became idle.
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
	// Runners that have not reached their deadline may be online too. Missing is then too low until they reach it.
	c.Suspects = suspects(old, len(old)+busy-online.Count)
	switch age := now.Sub(online.At); {
	case len(old) == 0 || c.Suspects.Missing > 0:
	case !online.At.After(online.Unsettled) && age >= countAgain:
		c.Ask = true // the count may include an ended runner in place of one of these
	case !online.At.After(online.Unsettled):
		c.wait(countAgain - age)
	case len(idle)+busy <= online.Count:
		c.Sure = old
	}
	return c
}

// wait lowers Next to d.
func (c *Connected) wait(d time.Duration) {
	if c.Next == 0 || d < c.Next {
		c.Next = d
	}
}

// Overdue returns the busy runners as suspects if GitHub counted fewer busy runners at the given time: the message about
// the end of a job may have been lost. It omits runners that became busy after the count, or less than Settle before it.
func Overdue(busy []Runner, counted int, at time.Time) Suspects {
	old := slices.DeleteFunc(slices.Clone(busy), func(r Runner) bool { return at.Before(r.Since.Add(Settle)) })
	return suspects(old, len(old)-counted)
}

// suspects returns the runners, sorted, as suspects; none if no runner is missing.
func suspects(runners []Runner, missing int) Suspects {
	if missing <= 0 {
		return Suspects{}
	}
	slices.SortFunc(runners, func(a, b Runner) int {
		return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Name, b.Name))
	})
	s := Suspects{Missing: missing}
	for _, r := range runners {
		s.Names = append(s.Names, r.Name)
	}
	return s
}
