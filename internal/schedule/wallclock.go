// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package schedule

// Schedules and policies compute with the times that the clock of a place shows. A time that the clock shows twice, because
// it is put back, means the first of the two moments. A time that the clock skips, because it is put forward, means the
// moment of the change. A shown time is a time.Time in UTC with the date and time of day that the clock shows, so that
// additions to it follow the clock.

import (
	"errors"
	"fmt"
	"sync"
	"time"
	_ "time/tzdata" // the same zones everywhere, even in an image without a time zone database
)

// ErrLocal rejects the zone of the machine, because decisions must not depend on the machine.
var ErrLocal = errors.New("the zone Local is another on each machine: use a name of the IANA database, such as Europe/Berlin")

// locations caches loaded zones, because loading a zone takes longer than a decision. The size of
// the database limits the cache.
var locations sync.Map

// Location returns a zone of the IANA database. The empty name is UTC. The error for an unknown
// name, and for Local, explains which names to use.
func Location(zone string) (*time.Location, error) {
	if known, ok := locations.Load(zone); ok {
		return known.(*time.Location), nil
	}
	if zone == "Local" {
		return nil, ErrLocal
	}
	location, err := time.LoadLocation(zone)
	if err != nil || zone == "localtime" { // a file of the machine next to the files of the database
		return nil, fmt.Errorf("there is no time zone %.64q: use a name of the IANA database, such as Europe/Berlin", zone)
	}
	locations.Store(zone, location)
	return location, nil
}

// widest is longer than every offset from UTC, and than every period that clocks are set back.
const widest = 26 * time.Hour

// First returns the moment when a clock in a place first shows a time, or a later time if that time is skipped.
func First(place *time.Location, shown time.Time) time.Time {
	at := shown.Add(-widest)
	for {
		local := at.In(place)
		_, end := local.ZoneBounds()
		_, east := local.Zone()
		first := shown.Add(-time.Duration(east) * time.Second)
		if first.Before(at) { // the clock skipped the time when it was put forward
			first = at
		}
		if end.IsZero() || first.Before(end) {
			return first.In(place)
		}
		at = end
	}
}

// Shown returns the latest time that a clock in a place has shown up to now. Usually this is the current time. While the
// clock repeats times after it was put back, it is the last time before that.
func Shown(place *time.Location, now time.Time) time.Time {
	latest := faceOf(now.In(place))
	for at := now; ; {
		start, _ := at.In(place).ZoneBounds()
		if start.IsZero() || now.Sub(start) >= widest {
			return latest
		}
		at = start.Add(-time.Nanosecond)
		if before := faceOf(at.In(place)); before.After(latest) {
			latest = before
		}
	}
}

// faceOf returns the time that the clock shows, as UTC.
func faceOf(t time.Time) time.Time {
	_, east := t.Zone()
	return t.UTC().Add(time.Duration(east) * time.Second)
}

// Minutes parses HH:MM, up to 24:00, as minutes of the day.
func Minutes(text string) (int, error) {
	if len(text) != 5 || text[2] != ':' {
		return 0, fmt.Errorf("it is HH:MM, not %.40q", text)
	}
	for _, i := range []int{0, 1, 3, 4} {
		if text[i] < '0' || text[i] > '9' {
			return 0, fmt.Errorf("it is a time from 00:00 to 24:00, not %q", text)
		}
	}
	hours, minutes := int(text[0]-'0')*10+int(text[1]-'0'), int(text[3]-'0')*10+int(text[4]-'0')
	if minutes > 59 || hours*60+minutes > 24*60 {
		return 0, fmt.Errorf("it is a time from 00:00 to 24:00, not %q", text)
	}
	return hours*60 + minutes, nil
}
