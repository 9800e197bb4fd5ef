// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaling

import (
	"fmt"
	"math"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// After the first failed round, the next one starts immediately. The wait after the second failed round is roundMin. It
// doubles with each further failed round, up to roundMax.
const (
	roundMin = 5 * time.Second
	roundMax = 5 * time.Minute
)

// PatienceMax is the longest startup deadline that Patience returns, unless the configured deadline is longer.
const PatienceMax = time.Hour

// Rounds limits how often runners of one template are created while they fail for causes that are not the template's fault, such as nodes
// that reject pods. A Circuit does not count those causes. One round consists of all runners that were created before its first failure was
// noticed. The zero value limits nothing.
type Rounds struct {
	// Count is the number of consecutive failed rounds.
	Count int
	// Issued is the highest runner number that existed when the last round was counted. Higher numbers belong to the next round.
	Issued int64
	// Last is the time of the last failure. Cause and Message describe it.
	Last    time.Time
	Cause   v1alpha1.RunnerCause
	Message string
}

// Failed counts the failure of one runner. number is the number in its name, and issued the highest runner number so far. Permanent causes
// are left to the Circuit.
func (r Rounds) Failed(number, issued int64, cause v1alpha1.RunnerCause, message string, at time.Time) Rounds {
	if cause.Permanent() {
		return r
	}
	if number > r.Issued {
		r.Count++
		r.Issued = max(number, issued)
	}
	r.Cause, r.Message = cause, message
	if at.After(r.Last) {
		r.Last = at
	}
	return r
}

// Open reports whether so many rounds in a row failed that the pool counts as unhealthy.
func (r Rounds) Open() bool { return r.Count >= Tolerated }

// wait returns the time between the last failure and the next round.
func (r Rounds) wait() time.Duration {
	if r.Count < 2 {
		return 0
	}
	return min(roundMax, roundMin<<min(r.Count-2, 10))
}

// Next returns when the next round starts.
func (r Rounds) Next() time.Time { return r.Last.Add(r.wait()) }

// Left returns the time until the next round; 0 if runners may be created now.
func (r Rounds) Left(now time.Time) time.Duration { return max(0, r.Next().Sub(now)) }

// Hold limits a pool that waits for its next round to the jobs that its live runners can take. When the round is due, the pool accepts one
// more job, because a pool without runners would otherwise never try again. The round then creates all missing runners: single runners could
// all land on the same broken node. Hold returns false if there is nothing to limit.
func (r Rounds) Hold(live int32, now time.Time) (Hold, bool) {
	if r.wait() == 0 {
		return Hold{}, false
	}
	if r.Left(now) > 0 {
		return Hold{Announce: live, Reason: r.String() + nextTry(r.Next())}, true
	}
	return Hold{Announce: live + 1, Create: math.MaxInt32, Reason: r.String() + nextTry(r.Next())}, true
}

// Patience returns the startup deadline of the next round. If the last runner failed because it did not start in time, the
// deadline doubles with each consecutive failed round, up to PatienceMax. With a constant deadline, runners that need
// longer would never start.
func (r Rounds) Patience(deadline time.Duration) time.Duration {
	switch r.Cause {
	case v1alpha1.CauseSlow, v1alpha1.CauseUnschedulable, v1alpha1.CauseGitHub:
		return max(deadline, min(PatienceMax, deadline<<min(r.Count, 10)))
	}
	return deadline
}

// String describes the failed rounds. The text changes only when another runner fails.
func (r Rounds) String() string {
	return fmt.Sprintf("%d attempts in a row produced no working runner (%s: %s)", r.Count, r.Cause, r.Message)
}
