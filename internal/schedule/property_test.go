// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

// zones of the two years: with an hour or half an hour of daylight saving, north and south, at midnight, around
// Ramadan, with standard time in summer, and without daylight saving.
var zones = []string{
	"Europe/Berlin", "Europe/Dublin", "America/New_York", "America/Santiago", "Australia/Lord_Howe",
	"Africa/Casablanca", "Asia/Kolkata", "Pacific/Chatham",
}

// clock steps through the minutes in a place, and returns the minutes that it shows for the first time: one in most
// steps, none while it repeats times after it went back, and many at once when it is put forward.
type clock struct {
	place  *time.Location
	newest time.Time
}

func (c *clock) tick(now time.Time) (fresh []time.Time) {
	local := now.In(c.place)
	face := time.Date(local.Year(), local.Month(), local.Day(), local.Hour(), local.Minute(), 0, 0, time.UTC)
	if c.newest.IsZero() {
		c.newest = face.Add(-time.Minute)
	}
	for c.newest.Before(face) {
		c.newest = c.newest.Add(time.Minute)
		fresh = append(fresh, c.newest)
	}
	return fresh
}

// counted is a schedule as a person would follow it with a clock: it begins at certain shown minutes, and continues for
// a number of shown minutes.
type counted struct {
	begins func(shown time.Time) bool
	lasts  int
	left   int
}

func (c *counted) follow(fresh []time.Time) (holds bool) {
	for _, shown := range fresh {
		c.left = max(0, c.left-1)
		if c.begins(shown) {
			c.left = c.lasts
		}
	}
	return c.left > 0
}

// example is a schedule in both forms.
type example struct {
	schedule v1alpha1.Schedule
	counted  counted
}

func weekday(d time.Weekday) bool { return d != time.Saturday && d != time.Sunday }

func clockIs(at time.Time, hour, minute int) bool { return at.Hour() == hour && at.Minute() == minute }

// examples returns schedules of every kind, many at the hours when clocks change.
func examples(zone string) []example {
	number := v1alpha1.ScheduledScale{Min: p(int32(1))}
	return []example{
		{weekly("office", zone, "08:00", "18:30", number, "Monday", "Tuesday", "Wednesday", "Thursday", "Friday"),
			counted{begins: func(s time.Time) bool { return weekday(s.Weekday()) && clockIs(s, 8, 0) }, lasts: 630}},
		{weekly("nights", zone, "22:00", "02:30", number), counted{begins: func(s time.Time) bool { return clockIs(s, 22, 0) }, lasts: 270}},
		{weekly("skipped and doubled", zone, "02:10", "02:50", number, "Sunday"),
			counted{begins: func(s time.Time) bool { return s.Weekday() == time.Sunday && clockIs(s, 2, 10) }, lasts: 40}},
		{weekly("from a skipped hour", zone, "02:30", "04:00", number), counted{begins: func(s time.Time) bool { return clockIs(s, 2, 30) }, lasts: 90}},
		{weekly("around midnight", zone, "23:30", "00:15", number), counted{begins: func(s time.Time) bool { return clockIs(s, 23, 30) }, lasts: 45}},
		{weekly("from midnight", zone, "00:00", "00:45", number), counted{begins: func(s time.Time) bool { return clockIs(s, 0, 0) }, lasts: 45}},
		{weekly("Sundays", zone, "00:00", "24:00", number, "Sunday"),
			counted{begins: func(s time.Time) bool { return s.Weekday() == time.Sunday && clockIs(s, 0, 0) }, lasts: 1440}},
		{byCron("quarters", zone, "*/15 1-3 * * *", 5*time.Minute, number),
			counted{begins: func(s time.Time) bool { return s.Hour() >= 1 && s.Hour() <= 3 && s.Minute()%15 == 0 }, lasts: 5}},
		{byCron("month's ends", zone, "30 2 1,28-31 * *", 26*time.Hour, number),
			counted{begins: func(s time.Time) bool { return (s.Day() == 1 || s.Day() >= 28) && clockIs(s, 2, 30) }, lasts: 26 * 60}},
		{byCron("13th or Friday", zone, "0 9 13 * FRI", 90*time.Minute, number),
			counted{begins: func(s time.Time) bool { return (s.Day() == 13 || s.Weekday() == time.Friday) && clockIs(s, 9, 0) }, lasts: 90}},
		{byCron("spring", zone, "0 0 1 3 *", 31*24*time.Hour, number),
			counted{begins: func(s time.Time) bool { return s.Month() == time.March && s.Day() == 1 && clockIs(s, 0, 0) }, lasts: 31 * 1440}},
		{byCron("touching", zone, "0 * * * MON", time.Hour, number),
			counted{begins: func(s time.Time) bool { return s.Weekday() == time.Monday && s.Minute() == 0 }, lasts: 60}},
	}
}

// transition is a change of the active schedules.
type transition struct {
	At     string
	Active []string
}

// changing reports whether the clock changes around a time.
func changing(now time.Time) bool {
	_, before := now.Add(-3 * time.Hour).Zone()
	_, after := now.Add(3 * time.Hour).Zone()
	return before != after
}

// TestALeapYearOfTransitions compares the changes that the plan predicts with the result of following the schedules
// minute by minute on a clock. It also compares the state in between: at random times, and each minute when clocks
// change.
func TestALeapYearOfTransitions(t *testing.T) {
	from := time.Date(2027, 12, 10, 0, 0, 0, 0, time.UTC)
	to := from.AddDate(1, 1, 0)
	for _, zone := range zones {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			place, err := time.LoadLocation(zone)
			if err != nil {
				t.Fatal(err)
			}
			list := examples(zone)
			var schedules []v1alpha1.Schedule
			for _, e := range list {
				schedules = append(schedules, e.schedule)
			}
			foretold := plan(t, schedules...)
			var want []transition
			c, active := clock{place: place}, []string(nil)
			for now := from.AddDate(0, -2, 0); now.Before(to); now = now.Add(time.Minute) {
				fresh := c.tick(now)
				var holds []string
				for i := range list {
					if list[i].counted.follow(fresh) {
						holds = append(holds, list[i].schedule.Name)
					}
				}
				if !slices.Equal(holds, active) && now.After(from) {
					want = append(want, transition{now.Format(time.RFC3339), holds})
				}
				active = holds
				if now.After(from) && (now.Unix()/60%701 == 0 || changing(now.In(place))) {
					if at := foretold.At(now, v1alpha1.ScaleSpec{}); !slices.Equal(at.Active, holds) {
						t.Fatalf("at %s hold %q, not %q", now.In(place), holds, at.Active)
					}
				}
			}
			changes := foretold.Changes(from, to, v1alpha1.ScaleSpec{}, 1<<20)
			got := make([]transition, len(changes))
			for i, change := range changes {
				got[i] = transition{change.At.UTC().Format(time.RFC3339), change.Active}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-followed +foretold\n%.4000s", diff)
			}
			t.Logf("%d transitions", len(want))
		})
	}
}

// TestAtAnyTime compares plans at random times with the result of walking through all changes.
func TestAtAnyTime(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 5))
	var schedules []v1alpha1.Schedule
	for _, zone := range zones {
		for _, e := range examples(zone) {
			e.schedule.Name = strings.ToLower(zone + " " + e.schedule.Name)
			e.schedule.Scale = v1alpha1.ScheduledScale{Min: p(random.Int32N(50))}
			if random.IntN(2) == 0 {
				e.schedule.Scale.Max = p(50 + random.Int32N(50))
			}
			schedules = append(schedules, e.schedule)
		}
	}
	random.Shuffle(len(schedules), func(i, j int) { schedules[i], schedules[j] = schedules[j], schedules[i] })
	all := plan(t, schedules...)
	from := time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC)
	changes := all.Changes(from, from.AddDate(0, 3, 0), v1alpha1.ScaleSpec{}, 1<<20)
	for range 1000 {
		i := random.IntN(len(changes) - 1)
		at := changes[i].At.Add(time.Duration(random.Int64N(int64(changes[i+1].At.Sub(changes[i].At)))))
		if diff := cmp.Diff(changes[i].Now, all.At(at, v1alpha1.ScaleSpec{})); diff != "" {
			t.Fatalf("at %s: -walked +asked\n%s", at, diff)
		}
	}
}

// FuzzCompile compiles arbitrary schedules. Accepted ones can be evaluated quickly.
func FuzzCompile(f *testing.F) {
	f.Add("0 7 * * MON-FRI", "Europe/Berlin", "08:00", int64(time.Hour))
	f.Add("*/7 */5 29 2 ?", "Africa/Casablanca", "24:00", int64(400*time.Hour))
	f.Add("TZ=", "localtime", "", int64(-1))
	f.Fuzz(func(t *testing.T, start, zone, at string, lasts int64) {
		plan, _ := Compile([]v1alpha1.Schedule{
			byCron("cron", zone, start, time.Duration(lasts), minOne), weekly("weekly", zone, at, "24:00", maxZero),
		})
		now := time.Date(2026, 10, 25, 0, 30, 0, 0, time.UTC)
		for _, c := range plan.Changes(now, now.AddDate(3, 0, 0), v1alpha1.ScaleSpec{}, 100) {
			if !c.At.After(now) || c.Min < 0 || c.Min > c.Max || c.Idle > c.Max {
				t.Fatalf("after %s: %+v", now, c)
			}
			now = c.At
		}
	})
}

func BenchmarkAt(b *testing.B) {
	var schedules []v1alpha1.Schedule
	for _, e := range examples("Europe/Berlin")[:8] {
		schedules = append(schedules, e.schedule)
	}
	plan, _ := Compile(schedules)
	now := time.Date(2026, 10, 25, 0, 30, 0, 0, time.UTC)
	for b.Loop() {
		plan.At(now, v1alpha1.ScaleSpec{})
	}
}
