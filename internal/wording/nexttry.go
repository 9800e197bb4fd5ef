// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package wording

import (
	"regexp"
	"time"
)

// Clock is the layout of a time of day, in UTC, as package time has layouts.
const Clock = "15:04:05Z"

// nextTry is what NextTry and NextTryBy write, with what joins it to a message.
var nextTry = regexp.MustCompile(`(?:; )?next try (?:by )?(\d\d:\d\d:\d\dZ)`)

// NextTry says when something is tried again, by the clock in UTC: other than a time span, that is as true when it is read.
func NextTry(at time.Time) string { return at.UTC().Format("next try " + Clock) }

// NextTryBy is NextTry of a time that is the latest.
func NextTryBy(at time.Time) string { return at.UTC().Format("next try by " + Clock) }

// WithoutNextTry returns a message without what NextTry says, which is another with each attempt.
func WithoutNextTry(message string) string { return nextTry.ReplaceAllString(message, "") }

// NextTryIn returns the time of the next try that a message tells; the zero time for none, and for one that is over for a minute. The
// message has the time of day alone: the next one after it was written, which is now or lately.
func NextTryIn(message string, now time.Time) time.Time {
	m := nextTry.FindStringSubmatch(message)
	if m == nil {
		return time.Time{}
	}
	clock, err := time.Parse(Clock, m[1])
	if err != nil {
		return time.Time{}
	}
	now = now.UTC()
	at := time.Date(now.Year(), now.Month(), now.Day(), clock.Hour(), clock.Minute(), clock.Second(), 0, time.UTC)
	if now.Sub(at) > 12*time.Hour {
		at = at.AddDate(0, 0, 1)
	}
	if now.Sub(at) > time.Minute {
		return time.Time{}
	}
	return at
}
