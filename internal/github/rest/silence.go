// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rest

import "time"

const (
	// silentCalls is how many calls of a kind in a row have to fail before Corral pauses that kind.
	silentCalls = 3
	// silentKinds is how many kinds have to fail, with no answer in between, before Corral pauses all calls. The last
	// of them must start or remove runners (see decides).
	silentKinds = 3
	// pauseMin and pauseMost bound a pause. It doubles with each failure.
	pauseMin, pauseMost = time.Second, 30 * time.Second
	// mostUnavailable limits the Retry-After of an answer that only reports that a service is unavailable.
	mostUnavailable = 5 * time.Minute
)

// silence counts consecutive calls that GitHub did not answer, or answered with 5xx. After several such calls it
// becomes a pause, during which calls fail without a request. The first answer ends the pause. After the time of the
// pause, one call at a time is sent: the probe. All methods except fail accept a nil receiver, which stands for a kind
// that has not failed.
type silence struct {
	calls  int       // in a row
	failed time.Time // when the last failure was counted
	until  time.Time // zero without a pause
	probe  time.Time // when the probe began; zero if there is none
}

func (s *silence) isPaused() bool { return s != nil && !s.until.IsZero() }

// left returns how long a call has to wait. While a probe is in flight, this is an estimate.
func (s *silence) left(now time.Time) time.Duration {
	switch {
	case !s.isPaused():
		return 0
	case s.probe.IsZero():
		return s.until.Sub(now)
	}
	return max(pauseMin, s.until.Sub(now))
}

// send records the start of a call. During a pause, this call is the probe.
func (s *silence) send(began time.Time) {
	if s.isPaused() {
		s.probe = began
	}
}

// over records the end of the call that began at the given time.
func (s *silence) over(began time.Time) {
	if s != nil && s.probe.Equal(began) {
		s.probe = time.Time{}
	}
}

// fail counts a call without an answer, unless the call was already in flight when the last failure was counted. The
// given number of calls begins a pause, and so does a failure for which GitHub asked to wait. The longer of the two
// times counts.
func (s *silence) fail(began, now time.Time, calls int, asked time.Duration) {
	if began.Before(s.failed) {
		return
	}
	s.failed = now
	s.calls++
	pause := asked
	if s.calls >= calls {
		pause = max(asked, min(pauseMost, pauseMin<<min(s.calls-calls, 10)))
	}
	if until := now.Add(pause); pause > 0 && until.After(s.until) {
		s.until = until
	}
}
