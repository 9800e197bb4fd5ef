// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"math/bits"
	"slices"
	"time"
)

const (
	day = 24 * time.Hour
	// horizon is the number of days in which the package looks for a start, and for the end of a schedule
	// that is active without a gap: 29 February recurs after at most eight years.
	horizon = 9 * 366
)

// Masks of all months, days of the month, and weekdays.
const (
	allMonths   = 1<<13 - 1<<1
	allDays     = 1<<32 - 1<<1
	allWeekdays = 1<<7 - 1
)

// recurrence is active for a duration after each of its starts, as measured by the clock of a place.
// It computes with the times that this clock shows (see Shown), and converts only the results to
// moments. A moment belongs to a window if the latest time that the clock has shown until then is in
// the window.
type recurrence struct {
	place *time.Location
	days  days
	// minutes of a day at which it starts, in order, from 0 to 1439.
	minutes []int
	// lasts is the duration: at least a minute, and at most 366 days.
	lasts time.Duration
	// seamless is true if there is no gap between the windows that start on one day, and always if there is none at all.
	seamless, always bool
}

// days is the set of days on which a recurrence starts, as masks of package cron: months, days of the
// month, and weekdays.
type days struct {
	month, month1, week uint64
	// either is true if a day needs to match only one of month1 and week.
	either bool
}

func newRecurrence(place *time.Location, d days, minutes []int, lasts time.Duration) *recurrence {
	r := &recurrence{place: place, days: d, minutes: minutes, lasts: lasts, seamless: true}
	for i := 1; i < len(minutes); i++ {
		if time.Duration(minutes[i]-minutes[i-1])*time.Minute > lasts {
			r.seamless = false
		}
	}
	overnight := time.Duration(minutes[0]-minutes[len(minutes)-1])*time.Minute + day
	r.always = r.seamless && overnight <= lasts && d.every()
	return r
}

// at implements span.
func (r *recurrence) at(now time.Time) (holds bool, until time.Time) {
	shown := Shown(r.place, now)
	holds, change := r.shown(shown)
	for !change.IsZero() {
		until = First(r.place, change)
		shown = Shown(r.place, until)
		var then bool
		if then, change = r.shown(shown); then != holds {
			return holds, until
		} // otherwise the clock skipped the change when it was put forward
	}
	return holds, time.Time{}
}

// shown reports whether the recurrence is active when a clock shows a time, and returns the shown time
// of the next change; zero if the change is beyond the horizon.
func (r *recurrence) shown(at time.Time) (holds bool, until time.Time) {
	if r.always {
		return true, time.Time{}
	}
	start, ok := r.last(at)
	if !ok || !at.Before(start.Add(r.lasts)) {
		next, _ := r.after(at)
		return false, next
	}
	for limit := at.Add(horizon * day); start.Before(limit); {
		end := start.Add(r.lasts)
		if r.seamless {
			start = midnight(start).Add(time.Duration(r.minutes[len(r.minutes)-1]) * time.Minute)
			end = start.Add(r.lasts)
		}
		next, ok := r.after(start)
		if !ok || next.After(end) {
			return true, end
		}
		start = next
	}
	return true, time.Time{}
}

// last returns the latest start up to a time, if it is recent enough to be active then.
func (r *recurrence) last(at time.Time) (time.Time, bool) {
	today := midnight(at)
	minute := int(at.Sub(today) / time.Minute)
	for back := 0; time.Duration(back-1)*day < r.lasts; back++ {
		date := today.Add(-time.Duration(back) * day)
		if !r.days.on(date) {
			continue
		}
		for i := len(r.minutes) - 1; i >= 0; i-- {
			if back > 0 || r.minutes[i] <= minute {
				return date.Add(time.Duration(r.minutes[i]) * time.Minute), true
			}
		}
	}
	return time.Time{}, false
}

// after returns the first start after a time, within the horizon.
func (r *recurrence) after(at time.Time) (time.Time, bool) {
	today := midnight(at)
	minute := int(at.Sub(today) / time.Minute)
	for ahead := range horizon {
		date := today.Add(time.Duration(ahead) * day)
		if !r.days.on(date) {
			continue
		}
		next := 0
		if ahead == 0 {
			next, _ = slices.BinarySearch(r.minutes, minute+1)
		}
		if next < len(r.minutes) {
			return date.Add(time.Duration(r.minutes[next]) * time.Minute), true
		}
	}
	return time.Time{}, false
}

func midnight(t time.Time) time.Time { return t.Truncate(day) }

// on reports whether the recurrence starts on a date.
func (d *days) on(date time.Time) bool {
	_, month, dayOfMonth := date.Date()
	if d.month&(1<<month) == 0 {
		return false
	}
	inMonth, inWeek := d.month1&(1<<dayOfMonth) != 0, d.week&(1<<date.Weekday()) != 0
	if d.either {
		return inMonth || inWeek
	}
	return inMonth && inWeek
}

// every reports whether all dates match.
func (d *days) every() bool {
	isEveryMonth, isEveryDay, isEveryWeekday := d.month&allMonths == allMonths, d.month1&allDays == allDays, d.week&allWeekdays == allWeekdays
	return isEveryMonth && (isEveryDay && isEveryWeekday || d.either && (isEveryDay || isEveryWeekday))
}

// never reports whether no date matches, such as 30 February.
func (d *days) never() bool {
	if d.either && d.week != 0 {
		return d.month == 0
	}
	longest := 0
	for month, length := range [13]int{0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31} {
		if d.month&(1<<month) != 0 {
			longest = max(longest, length)
		}
	}
	return d.week == 0 || d.month1 == 0 || bits.TrailingZeros64(d.month1) > longest
}

// once is active between two moments.
type once struct{ from, to time.Time }

// at implements span.
func (o once) at(now time.Time) (holds bool, until time.Time) {
	switch {
	case now.Before(o.from):
		return false, o.from
	case now.Before(o.to):
		return true, o.to
	}
	return false, time.Time{}
}
