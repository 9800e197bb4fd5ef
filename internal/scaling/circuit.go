// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package scaling

import (
	"fmt"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// maxMessage bounds a message in the status, in bytes.
const maxMessage = 300

// Status returns what another process needs to continue with the circuit; nil if that is nothing.
func (c Circuit) Status() *v1alpha1.HealthStatus {
	s := &v1alpha1.HealthStatus{Revision: c.Revision}
	if c.Failures > 0 {
		s.Circuit = countStatus(c.Failures, c.Cause, c.Message, c.Last, c.NextProbe())
	}
	if r := c.Rounds; r.wait() > 0 {
		s.Rounds = countStatus(r.Count, r.Cause, r.Message, r.Last, r.Next())
	}
	if s.Circuit == nil && s.Rounds == nil {
		return nil
	}
	return s
}

func countStatus(count int, cause v1alpha1.RunnerCause, message string, last, next time.Time) *v1alpha1.FailureCount {
	return &v1alpha1.FailureCount{
		Count: int32(min(count, math.MaxInt32)), Cause: cause, Message: wording.Truncate(message, maxMessage), //nolint:gosec // bounded
		Last: metav1.Time{Time: last.Truncate(time.Second)}, NextAttempt: metav1.Time{Time: next.Truncate(time.Second)},
	}
}

// Recall returns the circuit that another process recorded for a revision. None of its failures are the template's own, as the other process acted on
// those. The circuit is closed if s is nil or records another revision.
func Recall(revision string, s *v1alpha1.HealthStatus) Circuit {
	c := Circuit{Revision: revision}
	if s == nil || s.Revision != revision {
		return c
	}
	if n := s.Circuit; n != nil {
		c.Failures, c.Cause, c.Message = int(n.Count), n.Cause, n.Message
		c.First, c.Last = n.Last.Time, n.Last.Time
	}
	if n := s.Rounds; n != nil {
		c.Rounds = Rounds{Count: int(n.Count), Last: n.Last.Time, Cause: n.Cause, Message: n.Message}
	}
	return c
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
	h := Hold{Announce: busy + min(free, 1), Reason: c.Row() + nextTry(c.NextProbe())}
	if probes > 0 {
		return h, 0
	}
	if wait := c.NextProbe().Sub(now); wait > 0 {
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

// NextProbe is when a runner is tried, unless one is under way.
func (c Circuit) NextProbe() time.Time { return c.Last.Add(c.Interval()) }

// nextTry ends the reason of a hold with the time of the next attempt.
func nextTry(at time.Time) string { return at.UTC().Format("; next try " + wording.Clock) }
