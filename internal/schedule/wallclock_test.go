// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"strings"
	"testing"
	"time"
)

func place(t *testing.T, zone string) *time.Location {
	t.Helper()
	location, err := Location(zone)
	if err != nil {
		t.Fatal(err)
	}
	return location
}

func shown(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse("2006-01-02 15:04:05.999999999", text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestFirst(t *testing.T) {
	for name, tc := range map[string]struct{ zone, shown, want string }{
		"a common day":                         {"Europe/Berlin", "2026-07-01 09:00:00", "2026-07-01T07:00:00Z"},
		"skipped: at the moment":               {"Europe/Berlin", "2026-03-29 02:30:00", "2026-03-29T01:00:00Z"},
		"the first that is not skipped":        {"Europe/Berlin", "2026-03-29 03:00:00", "2026-03-29T01:00:00Z"},
		"shown twice: the first time":          {"Europe/Berlin", "2026-10-25 02:30:00", "2026-10-25T00:30:00Z"},
		"the last that is shown once":          {"Europe/Berlin", "2026-10-25 03:00:00", "2026-10-25T02:00:00Z"},
		"west of UTC, skipped":                 {"America/New_York", "2026-03-08 02:00:00", "2026-03-08T07:00:00Z"},
		"west of UTC, shown twice":             {"America/New_York", "2026-11-01 01:59:00", "2026-11-01T05:59:00Z"},
		"half an hour, skipped":                {"Australia/Lord_Howe", "2026-10-04 02:15:00", "2026-10-03T15:30:00Z"},
		"half an hour, shown twice":            {"Australia/Lord_Howe", "2026-04-05 01:45:00", "2026-04-04T14:45:00Z"},
		"midnight is skipped":                  {"America/Santiago", "2026-09-06 00:00:00", "2026-09-06T04:00:00Z"},
		"the hour before midnight, twice":      {"America/Santiago", "2026-04-04 23:30:00", "2026-04-05T02:30:00Z"},
		"the midnight after":                   {"America/Santiago", "2026-04-05 00:00:00", "2026-04-05T04:00:00Z"},
		"a day that is skipped":                {"Pacific/Apia", "2011-12-30 12:00:00", "2011-12-30T10:00:00Z"},
		"a date that is shown twice":           {"Pacific/Kwajalein", "1969-09-30 12:00:00", "1969-09-30T01:00:00Z"},
		"changes that are a month apart":       {"Africa/Casablanca", "2026-02-15 02:30:00", "2026-02-15T01:30:00Z"},
		"a zone that has no other time":        {"Asia/Kolkata", "2026-03-29 02:30:00", "2026-03-28T21:00:00Z"},
		"in two years, beyond any table":       {"Europe/Berlin", "2060-03-28 02:30:00", "2060-03-28T01:00:00Z"},
		"before zones were, by the sun's time": {"Europe/Berlin", "1850-01-01 00:00:00", "1849-12-31T23:06:32Z"},
	} {
		t.Run(name, func(t *testing.T) {
			got := First(place(t, tc.zone), shown(t, tc.shown))
			if got.UTC().Format(time.RFC3339) != tc.want {
				t.Errorf("got %s, want %s", got.UTC().Format(time.RFC3339), tc.want)
			}
			if s := Shown(place(t, tc.zone), got); s.Before(shown(t, tc.shown)) {
				t.Errorf("then the clock has shown only %s", s)
			}
			if s := Shown(place(t, tc.zone), got.Add(-time.Nanosecond)); !s.Before(shown(t, tc.shown)) {
				t.Errorf("the clock has shown it before: %s", s)
			}
		})
	}
}

func TestShown(t *testing.T) {
	for name, tc := range map[string]struct{ zone, now, want string }{
		"what the clock shows":            {"Europe/Berlin", "2026-07-01T07:00:00Z", "2026-07-01 09:00:00"},
		"before it is put back":           {"Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-25 02:30:00"},
		"put back: what it showed before": {"Europe/Berlin", "2026-10-25T01:00:00Z", "2026-10-25 02:59:59.999999999"},
		"still":                           {"Europe/Berlin", "2026-10-25T01:59:00Z", "2026-10-25 02:59:59.999999999"},
		"until it shows later":            {"Europe/Berlin", "2026-10-25T02:01:00Z", "2026-10-25 03:01:00"},
		"put forward":                     {"Europe/Berlin", "2026-03-29T01:00:00Z", "2026-03-29 03:00:00"},
	} {
		t.Run(name, func(t *testing.T) {
			now, err := time.Parse(time.RFC3339, tc.now)
			if err != nil {
				t.Fatal(err)
			}
			if got := Shown(place(t, tc.zone), now); !got.Equal(shown(t, tc.want)) {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

func TestLocationRefuses(t *testing.T) {
	for zone, want := range map[string]string{
		"Mars/Olympus":               `there is no time zone "Mars/Olympus": use a name of the IANA database, such as Europe/Berlin`,
		"Local":                      "the zone Local is another on each machine",
		"localtime":                  `there is no time zone "localtime"`,
		"../../etc/passwd":           `there is no time zone "../../etc/passwd"`,
		strings.Repeat("x\n", 1<<16): `there is no time zone "` + strings.Repeat(`x\n`, 32) + `": use`,
	} {
		if _, err := Location(zone); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: got %v, want %s", zone, err, want)
		}
	}
}

func TestMinutes(t *testing.T) {
	for text, want := range map[string]int{"00:00": 0, "09:30": 570, "24:00": 1440} {
		if got, err := Minutes(text); err != nil || got != want {
			t.Errorf("%s: got %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "9:30", "24:01", "12:60", "-1:00", "+9:00", "12-00", "12:00:00", "٠٩:00"} {
		if got, err := Minutes(text); err == nil {
			t.Errorf("%q is taken for %d", text, got)
		}
	}
}
