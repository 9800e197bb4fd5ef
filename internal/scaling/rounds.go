// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaling

import (
	"fmt"
	"math"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/wording"
)

// The waits between rounds: the first round that failed is repeated at once, the next after RoundMin, doubling to RoundMax.
const (
	RoundMin = 5 * time.Second
	RoundMax = 5 * time.Minute
)

// PatienceMax is the longest startup deadline that Patience makes of a shorter one.
const PatienceMax = time.Hour

// Rounds paces the attempts to make runners of one template while they fail for causes that are not the template's, such as nodes
// that refuse pods: a Circuit does not count those. A round is all runners that were made before its first failure was noticed. The
// zero value paces nothing.
type Rounds struct {
	// Count is how many rounds in a row failed, without a runner that did well.
	Count int
	// Issued is the highest number that a runner had when the last round was counted. Runners with higher numbers are of the next round.
	Issued int64
	// Last is when the last failure was, and Cause and Message say what it was.
	Last    time.Time
	Cause   v1alpha1.RunnerCause
	Message string
}

// Failed counts the failure of the runner with a number. Issued is the highest number that a runner has by now.
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

// Open reports whether so many rounds failed that the pool is not healthy.
func (r Rounds) Open() bool { return r.Count >= Tolerated }

// wait is the time from the last failure to the next round.
func (r Rounds) wait() time.Duration {
	if r.Count < 2 {
		return 0
	}
	return min(RoundMax, RoundMin<<min(r.Count-2, 10))
}

// next is when the next round begins.
func (r Rounds) next() time.Time { return r.Last.Add(r.wait()) }

// Left is the time until the next round; 0 if runners may be made now.
func (r Rounds) Left(now time.Time) time.Duration { return max(0, r.next().Sub(now)) }

// Hold limits the pool to the jobs that its live runners can take and, once the next round is due, to one job more: without any job
// a pool at zero would never try again. Runners are made only when the next round is due, and then all that are missing: if only one
// was tried at a time, a single broken node could attract each of them. It returns false if nothing is to be held back.
func (r Rounds) Hold(live int32, now time.Time) (Hold, bool) {
	if r.wait() == 0 {
		return Hold{}, false
	}
	if r.Left(now) > 0 {
		return Hold{Announce: live, Reason: r.String()}, true
	}
	return Hold{Announce: live + 1, Create: math.MaxInt32, Reason: r.String()}, true
}

// Patience is the startup deadline of the next round: twice as long for each round whose runners did not start in time, up to
// PatienceMax. Otherwise no runner would ever start where starting takes longer than the deadline.
func (r Rounds) Patience(deadline time.Duration) time.Duration {
	switch r.Cause {
	case v1alpha1.CauseSlow, v1alpha1.CauseUnschedulable, v1alpha1.CauseGitHub:
		return max(deadline, min(PatienceMax, deadline<<min(r.Count, 10)))
	}
	return deadline
}

// Row says what failed, in a sentence without a full stop.
func (r Rounds) Row() string {
	return fmt.Sprintf("%d attempts in a row gave no runner (%s: %s)", r.Count, r.Cause, r.Message)
}

// String says what is amiss, in words that change only with a failure.
func (r Rounds) String() string { return r.Row() + "; " + wording.NextTry(r.next()) }
