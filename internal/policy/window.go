// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"time"

	"github.com/corral-dev/corral/internal/schedule"
)

// window is a time of the week.
type window struct {
	// days on which it begins, by time.Weekday.
	days [7]bool
	// from and to are minutes of the day, 0 to 1440. A window that does not end later than it begins continues past
	// midnight.
	from, to int
}

// everyDay stands for a window without days.
var everyDay = [7]bool{true, true, true, true, true, true, true}

// windowsAt reports whether one of the windows is open at a time, in the time's location. While one is open, until is
// the end of the open window that ends last. Otherwise it is the beginning of the next window; it is zero if there are
// no windows.
func windowsAt(now time.Time, windows []window) (open bool, until time.Time) {
	var ends, begins time.Time
	for days := -1; days <= 15; days++ {
		if days > 1 && (!ends.IsZero() || !begins.IsZero()) {
			break // later windows cannot begin or end earlier
		}
		for _, w := range windows {
			from, to, is := w.on(now, days)
			switch {
			case !is:
			case !from.After(now) && now.Before(to):
				ends = later(ends, to)
			case from.After(now) && (begins.IsZero() || from.Before(begins)):
				begins = from
			}
		}
	}
	if !ends.IsZero() {
		return true, ends
	}
	return false, begins
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// on returns the window that begins the given number of days from now; is is false if there is none.
func (w *window) on(now time.Time, days int) (from, to time.Time, is bool) {
	year, month, day := now.Date()
	midnight := time.Date(year, month, day+days, 0, 0, 0, 0, time.UTC)
	if !w.days[midnight.Weekday()] {
		return from, to, false
	}
	end := w.to
	if w.to <= w.from {
		end += 24 * 60
	}
	from = schedule.First(now.Location(), midnight.Add(time.Duration(w.from)*time.Minute))
	to = schedule.First(now.Location(), midnight.Add(time.Duration(end)*time.Minute))
	return from, to, from.Before(to)
}
