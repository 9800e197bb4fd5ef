// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaling

import (
	"fmt"
	"regexp"
	"strconv"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/wording"
)

// A Circuit opens when Tolerated runners in a row failed for a permanent cause. While
// it is open, one runner is tried after ProbeMin, doubling to ProbeMax.
const (
	Tolerated = 3
	ProbeMin  = 10 * time.Second
	ProbeMax  = 5 * time.Minute
)

// Circuit counts the failures of one template's runners, so that what can't work isn't
// tried over and over. The zero value is closed.
type Circuit struct {
	// Revision of the template; another one starts afresh.
	Revision string
	// Failures in a row, the cause and words of the last, and when the first and the last were.
	Failures    int
	Cause       v1alpha1.RunnerCause
	Message     string
	First, Last time.Time
	// Owned are those of them whose cause is the template's own: not one of the network
	// between the runner and GitHub.
	Owned int
	// Rounds counts failures for causes that are not permanent.
	Rounds Rounds
}

// Failed counts a failure of a runner that began at a time. Causes that pass by
// themselves don't count; nor do, once the circuit is open, runners that began before the
// last failure: they are of the same batch, and say nothing new.
func (c Circuit) Failed(cause v1alpha1.RunnerCause, message string, began, at time.Time) Circuit {
	if !cause.Permanent() {
		return c
	}
	if c.Failures == 0 {
		c.First = at
	}
	if !c.Open() || c.IsNewer(began) {
		c.Failures++
		if cause != v1alpha1.CauseNeverConnected {
			c.Owned++
		}
	}
	c.Cause, c.Message = cause, message
	if at.After(c.Last) {
		c.Last = at
	}
	return c
}

// said are the words of Row, and of Rounds without the next try.
var said = regexp.MustCompile(`(?s)^(\d{1,9}) (?:runners in a row failed|attempts in a row produced no working runner) \((\w+): (.*)\)$`)

// Recall reads the words of a circuit, or of failed rounds, that another process left, whose last failure was at a time. None of its failures are
// the template's own, as those were acted on. It is closed if the words are others.
func Recall(revision, text string, last time.Time) Circuit {
	parts := said.FindStringSubmatch(wording.WithoutNextTry(text))
	if parts == nil {
		return Circuit{Revision: revision}
	}
	n, _ := strconv.Atoi(parts[1]) // 0 of what is no number: closed
	if cause := v1alpha1.RunnerCause(parts[2]); !cause.Permanent() {
		return Circuit{Revision: revision, Rounds: Rounds{Count: n, Last: last, Cause: cause, Message: parts[3]}}
	}
	return Circuit{Revision: revision, Failures: n, Cause: v1alpha1.RunnerCause(parts[2]), Message: parts[3], First: last, Last: last}
}

// IsNewer reports whether what began at a time began after the last failure. Kubernetes cuts
// times to the second: what began in the same one counts as newer, or a runner that does
// well would never be believed.
func (c Circuit) IsNewer(began time.Time) bool { return !began.Before(c.Last.Truncate(time.Second)) }

// Succeeded closes the circuit: a runner got a job, or waits for one in good health.
func (c Circuit) Succeeded() Circuit { return Circuit{Revision: c.Revision, Rounds: c.Rounds} }

// Open reports whether runners are held back.
func (c Circuit) Open() bool { return c.Failures >= Tolerated }

// Interval is the time from the last failure to the next probe.
func (c Circuit) Interval() time.Duration {
	wait := ProbeMin
	for range c.Failures - Tolerated {
		if wait = min(2*wait, ProbeMax); wait == ProbeMax {
			break
		}
	}
	return wait
}

// Hold is what an open circuit allows: nothing beyond the runners with a job until the
// next probe is due, then one runner and one job to try it with; one job also while free
// runners have none. A probe under way is waited for. The time is that to the next probe;
// 0 when it is due or under way.
func (c Circuit) Hold(busy, free, probes int32, now time.Time) (Hold, time.Duration) {
	h := Hold{Announce: busy + min(free, 1), Reason: c.String()}
	if probes > 0 {
		return h, 0
	}
	if wait := c.nextProbe().Sub(now); wait > 0 {
		return h, wait
	}
	return h.Trying(busy), 0
}

// Trying returns a hold that allows one runner, and one job to try it with.
func (h Hold) Trying(busy int32) Hold {
	h.Announce, h.Create = busy+1, 1
	return h
}

// Row says what failed, in a sentence without a full stop.
func (c Circuit) Row() string {
	return fmt.Sprintf("%d runners in a row failed (%s: %s)", c.Failures, c.Cause, c.Message)
}

// String says what is amiss, in words that change only with a failure.
func (c Circuit) String() string { return c.Row() + "; " + wording.NextTry(c.nextProbe()) }

// nextProbe is when a runner is tried, unless one is under way.
func (c Circuit) nextProbe() time.Time { return c.Last.Add(c.Interval()) }
