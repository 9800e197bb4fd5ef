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

// A Circuit opens after Tolerated runners in a row have failed for permanent causes. While it is open, the pool tries one
// new runner at a time. The first try is ProbeMin after the last failure. The wait doubles with each further failure, up to
// ProbeMax.
const (
	Tolerated = 3
	ProbeMin  = 10 * time.Second
	ProbeMax  = 5 * time.Minute
)

// Circuit counts the failures of one template's runners, so that the pool does not keep
// starting runners that cannot work. The zero value is closed.
type Circuit struct {
	// Revision is the template's revision. Each revision has a circuit of its own.
	Revision string
	// Failures is the number of failures in a row. Cause and Message describe the last one. First and Last are the times of
	// the first and the last one.
	Failures    int
	Cause       v1alpha1.RunnerCause
	Message     string
	First, Last time.Time
	// Owned is how many of these failures the template itself caused. The failure of a runner that never connected does not
	// count, because the network between the runner and GitHub may be the cause.
	Owned int
	// Rounds counts failures for causes that are not permanent.
	Rounds Rounds
}

// Failed counts the failure of a runner that was created at the time began and failed at the time at. It ignores causes
// that are not permanent. While the circuit is open, runners that were created before the last failure do not count either:
// they belong to the same batch as the failed runner, and provide no new evidence.
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

// maxMessage limits a message in the status, in bytes.
const maxMessage = 300

// Status returns the state that another process needs to continue with the circuit; nil if there is none.
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

// Recall returns the circuit that another process recorded for a revision. Its failures do not count as Owned, because the
// other process already acted on them. The circuit is closed if s is nil or records another revision.
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

// IsNewer reports whether a start time is after the last failure. Kubernetes truncates times
// to the second, so a start in the second of the failure counts as newer. Otherwise a
// successful runner might never count.
func (c Circuit) IsNewer(began time.Time) bool { return !began.Before(c.Last.Truncate(time.Second)) }

// Succeeded closes the circuit, because a runner got a job or stays idle.
func (c Circuit) Succeeded() Circuit { return Circuit{Revision: c.Revision, Rounds: c.Rounds} }

// Open reports whether the circuit limits new runners.
func (c Circuit) Open() bool { return c.Failures >= Tolerated }

// Interval returns the time from the last failure to the next probe.
func (c Circuit) Interval() time.Duration {
	wait := ProbeMin
	for range c.Failures - Tolerated {
		if wait = min(2*wait, ProbeMax); wait == ProbeMax {
			break
		}
	}
	return wait
}

// Hold returns the limits of an open circuit. Until the next probe is due, and while a probe is running (probes is not 0),
// the pool creates no runners. It then accepts jobs for its busy runners, and one more job if a free runner can take it.
// When the probe is due, the pool may create one runner and accept one job for it. The returned time is the time until the
// next probe; 0 if the probe is due or running.
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

// Trying returns a copy of the hold that allows the pool to create one runner, and to accept one job for it.
func (h Hold) Trying(busy int32) Hold {
	h.Announce, h.Create = busy+1, 1
	return h
}

// Row describes the failures, in a sentence without a full stop.
func (c Circuit) Row() string {
	return fmt.Sprintf("%d runners in a row failed (%s: %s)", c.Failures, c.Cause, c.Message)
}

// NextProbe returns the time of the next probe, unless one is running.
func (c Circuit) NextProbe() time.Time { return c.Last.Add(c.Interval()) }

// nextTry returns the end of a hold's reason: the time of the next attempt.
func nextTry(at time.Time) string { return at.UTC().Format("; next try " + wording.Clock) }
