// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package rest

import "time"

const (
	// silentCalls is how many calls of a kind in a row have to fail before Corral pauses that kind.
	silentCalls = 3
	// silentKinds is how many kinds have to fail, with no answer in between, before Corral pauses all calls.
	silentKinds = 3
	// pauseMin and pauseMost bound a pause. It doubles with each failure.
	pauseMin, pauseMost = time.Second, 30 * time.Second
	// mostUnavailable bounds a Retry-After of an answer that only says that a service is unavailable.
	mostUnavailable = 5 * time.Minute
)

// silence counts calls that GitHub didn't answer, or answered with 5xx. After enough of them it is a
// pause, which ends with an answer. When its time is over, a single call may try: the probe. The methods
// accept nil for a kind that has not failed.
type silence struct {
	calls  int       // in a row
	failed time.Time // when one was last counted
	until  time.Time // zero without a pause
	probe  time.Time // when the probe began; zero without one under way
}

func (s *silence) isPaused() bool { return s != nil && !s.until.IsZero() }

// left returns how long a call has to wait. While a probe is under way, it is a guess.
func (s *silence) left(now time.Time) time.Duration {
	switch {
	case !s.isPaused():
		return 0
	case s.probe.IsZero():
		return s.until.Sub(now)
	}
	return max(pauseMin, s.until.Sub(now))
}

// send records that a call is made, which is the probe if there is a pause.
func (s *silence) send(began time.Time) {
	if s.isPaused() {
		s.probe = began
	}
}

// over records that the call that began at a time has ended.
func (s *silence) over(began time.Time) {
	if s != nil && s.probe.Equal(began) {
		s.probe = time.Time{}
	}
}

// fail counts a call without an answer, unless it was under way when another one failed. From the given
// number of calls on it begins a pause. GitHub may ask for a longer one.
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
