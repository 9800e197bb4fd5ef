// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

func p[T any](v T) *T { return &v }

func date(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func weekly(name, zone, from, to string, scale v1alpha1.ScheduledScale, on ...v1alpha1.Weekday) v1alpha1.Schedule {
	return v1alpha1.Schedule{Name: name, TimeZone: zone, Weekly: &v1alpha1.WeeklyWindow{Days: on, From: from, To: to}, Scale: scale}
}

func byCron(name, zone, start string, lasts time.Duration, scale v1alpha1.ScheduledScale) v1alpha1.Schedule {
	return v1alpha1.Schedule{Name: name, TimeZone: zone, Cron: &v1alpha1.CronWindow{Schedule: start, Duration: metav1.Duration{Duration: lasts}}, Scale: scale}
}

func atOnce(t *testing.T, name, from, to string, scale v1alpha1.ScheduledScale) v1alpha1.Schedule {
	t.Helper()
	return v1alpha1.Schedule{Name: name, Once: &v1alpha1.OnceWindow{From: metav1.NewTime(date(t, from)), To: metav1.NewTime(date(t, to))}, Scale: scale}
}

func plan(t *testing.T, schedules ...v1alpha1.Schedule) *Plan {
	t.Helper()
	plan, problems := Compile(schedules)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return plan
}

var (
	minOne  = v1alpha1.ScheduledScale{Min: p(int32(1))}
	maxZero = v1alpha1.ScheduledScale{Max: p(int32(0))}
)

func TestAt(t *testing.T) {
	own := v1alpha1.ScaleSpec{Min: p(int32(2)), Idle: p(int32(1)), Max: p(int32(10))}
	office := weekly("office", "Europe/Berlin", "08:00", "18:00", v1alpha1.ScheduledScale{Min: p(int32(5)), Idle: p(int32(3))},
		"Monday", "Tuesday", "Wednesday", "Thursday", "Friday")
	night := weekly("night", "Europe/Berlin", "22:00", "06:00", v1alpha1.ScheduledScale{Max: p(int32(1))})
	for name, tc := range map[string]struct {
		schedules []v1alpha1.Schedule
		scale     v1alpha1.ScaleSpec
		at        string
		want      Now
	}{
		"none": {nil, own, "2026-07-01T12:00:00Z", Now{Scale: v1alpha1.Scale{Min: 2, Idle: 1, Max: 10}}},
		"no numbers of its own": {
			nil, v1alpha1.ScaleSpec{}, "2026-07-01T12:00:00Z", Now{Scale: v1alpha1.Scale{Max: v1alpha1.UnboundedMax}}},
		"numbers that it sets": {
			[]v1alpha1.Schedule{office}, own, "2026-07-01T12:00:00Z",
			Now{Scale: v1alpha1.Scale{Min: 5, Idle: 3, Max: 10}, Active: []string{"office"}, Next: date(t, "2026-07-01T16:00:00Z")}},
		"the end is not in it": {
			[]v1alpha1.Schedule{office}, own, "2026-07-01T16:00:00Z", Now{Scale: v1alpha1.Scale{Min: 2, Idle: 1, Max: 10}, Next: date(t, "2026-07-02T06:00:00Z")}},
		"over the weekend": {
			[]v1alpha1.Schedule{office}, own, "2026-07-03T16:00:00Z", Now{Scale: v1alpha1.Scale{Min: 2, Idle: 1, Max: 10}, Next: date(t, "2026-07-06T06:00:00Z")}},
		"past midnight, min and idle cut to max": {
			[]v1alpha1.Schedule{night}, own, "2026-07-01T01:00:00Z",
			Now{Scale: v1alpha1.Scale{Min: 1, Idle: 1, Max: 1}, Active: []string{"night"}, Next: date(t, "2026-07-01T04:00:00Z")}},
		"the first that sets a number decides on it, others on the rest": {
			[]v1alpha1.Schedule{
				atOnce(t, "release", "2026-07-01T10:00:00Z", "2026-07-01T14:00:00Z", v1alpha1.ScheduledScale{Min: p(int32(8))}),
				office,
				weekly("all day", "", "00:00", "24:00", v1alpha1.ScheduledScale{Min: p(int32(1)), Idle: p(int32(9)), Max: p(int32(20))}),
			}, own, "2026-07-01T12:00:00Z",
			Now{Scale: v1alpha1.Scale{Min: 8, Idle: 3, Max: 20}, Active: []string{"release", "office", "all day"}, Next: date(t, "2026-07-01T14:00:00Z")}},
		"from zero": {
			[]v1alpha1.Schedule{weekly("shut", "", "20:00", "07:00", maxZero)}, v1alpha1.ScaleSpec{Min: p(int32(3))}, "2026-07-01T20:00:00Z",
			Now{Active: []string{"shut"}, Next: date(t, "2026-07-02T07:00:00Z")}},
		"always": {
			[]v1alpha1.Schedule{weekly("always", "Europe/Berlin", "00:00", "24:00", minOne)}, v1alpha1.ScaleSpec{}, "2026-07-01T20:00:00Z",
			Now{Scale: v1alpha1.Scale{Min: 1, Max: v1alpha1.UnboundedMax}, Active: []string{"always"}}},
		"each minute, for ever": {
			[]v1alpha1.Schedule{byCron("each", "Europe/Berlin", "* * * * *", time.Minute, minOne)}, v1alpha1.ScaleSpec{}, "2026-07-01T20:00:00Z",
			Now{Scale: v1alpha1.Scale{Min: 1, Max: v1alpha1.UnboundedMax}, Active: []string{"each"}}},
		"windows that touch are one": {
			[]v1alpha1.Schedule{byCron("days", "", "0 0 * * MON-FRI", 24*time.Hour, minOne)}, v1alpha1.ScaleSpec{}, "2026-07-01T20:00:00Z",
			Now{Scale: v1alpha1.Scale{Min: 1, Max: v1alpha1.UnboundedMax}, Active: []string{"days"}, Next: date(t, "2026-07-04T00:00:00Z")}},
		"29 February, in the year 2096": {
			[]v1alpha1.Schedule{byCron("leap", "", "0 0 29 2 *", 24*time.Hour, minOne)}, v1alpha1.ScaleSpec{}, "2096-03-01T00:00:00Z",
			Now{Scale: v1alpha1.Scale{Max: v1alpha1.UnboundedMax}, Next: date(t, "2104-02-29T00:00:00Z")}},
		"a year long": {
			[]v1alpha1.Schedule{byCron("year", "", "0 0 1 1 *", 365*24*time.Hour, minOne)}, v1alpha1.ScaleSpec{}, "2026-07-01T00:00:00Z",
			Now{Scale: v1alpha1.Scale{Min: 1, Max: v1alpha1.UnboundedMax}, Active: []string{"year"}, Next: date(t, "2028-12-31T00:00:00Z")}},
		"day of the month or of the week": {
			[]v1alpha1.Schedule{byCron("either", "", "0 9 13 * FRI", time.Hour, minOne)}, v1alpha1.ScaleSpec{}, "2026-07-10T10:00:00Z",
			Now{Scale: v1alpha1.Scale{Max: v1alpha1.UnboundedMax}, Next: date(t, "2026-07-13T09:00:00Z")}},
		"once, over": {
			[]v1alpha1.Schedule{atOnce(t, "was", "2026-07-01T10:00:00Z", "2026-07-01T14:00:00Z", minOne)}, own, "2026-07-01T14:00:00Z",
			Now{Scale: v1alpha1.Scale{Min: 2, Idle: 1, Max: 10}}},
		"a window in the skipped hour is not that day": {
			[]v1alpha1.Schedule{weekly("short", "Europe/Berlin", "02:10", "02:50", minOne)}, own, "2026-03-28T12:00:00Z",
			Now{Scale: v1alpha1.Scale{Min: 2, Idle: 1, Max: 10}, Next: date(t, "2026-03-30T00:10:00Z")}},
		"the end is in the skipped hour": {
			[]v1alpha1.Schedule{weekly("night", "Europe/Berlin", "22:00", "02:30", minOne)}, own, "2026-03-29T00:30:00Z",
			Now{Scale: v1alpha1.Scale{Min: 1, Idle: 1, Max: 10}, Active: []string{"night"}, Next: date(t, "2026-03-29T01:00:00Z")}},
		"an hour that is shown twice counts once": {
			[]v1alpha1.Schedule{weekly("short", "Europe/Berlin", "02:10", "02:50", minOne)}, own, "2026-10-25T01:20:00Z",
			Now{Scale: v1alpha1.Scale{Min: 2, Idle: 1, Max: 10}, Next: date(t, "2026-10-26T01:10:00Z")}},
		"by the clock, not by hours that pass": {
			[]v1alpha1.Schedule{byCron("eight", "Europe/Berlin", "0 22 * * *", 8*time.Hour, minOne)}, own, "2026-10-25T00:00:00Z",
			Now{Scale: v1alpha1.Scale{Min: 1, Idle: 1, Max: 10}, Active: []string{"eight"}, Next: date(t, "2026-10-25T05:00:00Z")}},
	} {
		t.Run(name, func(t *testing.T) {
			got := plan(t, tc.schedules...).At(date(t, tc.at), tc.scale)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestChangesAreBounded(t *testing.T) {
	each := plan(t, byCron("each", "", "*/2 * * * *", time.Minute, minOne))
	from := date(t, "2026-07-01T00:00:00Z")
	if got := each.Changes(from, from.AddDate(100, 0, 0), v1alpha1.ScaleSpec{}, 1000); len(got) != 1000 || !got[999].At.Equal(from.Add(1000*time.Minute)) {
		t.Errorf("got %d changes", len(got))
	}
	if got := each.Changes(from, from.Add(3*time.Minute), v1alpha1.ScaleSpec{}, 1000); len(got) != 2 {
		t.Errorf("got %d changes in the first 3 minutes", len(got))
	}
}

func TestCompileRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		schedule v1alpha1.Schedule
		want     string
	}{
		"zone that does not exist": {
			weekly("a", "Mars/Olympus", "08:00", "18:00", minOne),
			`spec.scale.schedules[1].timeZone: there is no time zone "Mars/Olympus": use a name of the IANA database, such as Europe/Berlin`},
		"zone of the machine":  {weekly("a", "Local", "08:00", "18:00", minOne), "spec.scale.schedules[1].timeZone: the zone Local is another on each machine"},
		"no times":             {v1alpha1.Schedule{Name: "a"}, "spec.scale.schedules[1]: one of weekly, cron and once must be set"},
		"no time":              {weekly("a", "", "8", "18:00", minOne), `spec.scale.schedules[1].weekly.from: it is HH:MM, not "8"`},
		"from midnight":        {weekly("a", "", "24:00", "18:00", minOne), "spec.scale.schedules[1].weekly.from: it must be before 24:00"},
		"no end":               {weekly("a", "", "08:00", "25:00", minOne), `spec.scale.schedules[1].weekly.to: it is a time from 00:00 to 24:00, not "25:00"`},
		"no day":               {weekly("a", "", "08:00", "18:00", minOne, "Monday", "Caturday"), `spec.scale.schedules[1].weekly.days[1]: "Caturday" is no weekday`},
		"too short":            {byCron("a", "", "0 0 * * *", time.Second, minOne), "spec.scale.schedules[1].cron.duration: 1s is not from 1m to 8784h"},
		"too long":             {byCron("a", "", "0 0 * * *", 10000*time.Hour, minOne), "spec.scale.schedules[1].cron.duration: 10000h0m0s is not from 1m"},
		"four fields":          {byCron("a", "", "0 0 * *", time.Hour, minOne), "spec.scale.schedules[1].cron.schedule: expected exactly 5 fields, found 4: [0 0 * *]: write minute hour"},
		"day 7":                {byCron("a", "", "0 0 * * 7", time.Hour, minOne), "spec.scale.schedules[1].cron.schedule: end of range (7) above maximum (6): 7: write minute"},
		"short form":           {byCron("a", "", "@midnight", time.Hour, minOne), `spec.scale.schedules[1].cron.schedule: "@midnight" is an unsupported short form`},
		"zone in it":           {byCron("a", "", "CRON_TZ=UTC 0 0 * * *", time.Hour, minOne), "spec.scale.schedules[1].cron.schedule: a zone in it is not read: set the schedule's field timeZone"},
		"zone that ends it":    {byCron("a", "", "TZ=UTC", time.Hour, minOne), "spec.scale.schedules[1].cron.schedule: a zone in it is not read"},
		"30 February":          {byCron("a", "", "0 0 30 2 *", time.Hour, minOne), `spec.scale.schedules[1].cron.schedule: "0 0 30 2 *" never comes`},
		"31st of short months": {byCron("a", "", "0 0 31 4,6,9,11 *", time.Hour, minOne), `never comes`},
		"nothing in a field":   {byCron("a", "", ", 0 * * *", time.Hour, minOne), `never comes`},
		"very long":            {byCron("a", "", strings.Repeat("0,", 1<<16)+" 0 * * *", time.Hour, minOne), `longer than 128 characters`},
		"ends before it begins": {
			atOnce(t, "a", "2026-07-02T00:00:00Z", "2026-07-01T00:00:00Z", minOne), "spec.scale.schedules[1].once: from must be before to"},
	} {
		t.Run(name, func(t *testing.T) {
			good := weekly("good", "", "08:00", "18:00", minOne)
			plan, problems := Compile([]v1alpha1.Schedule{good, tc.schedule, good})
			if len(problems) != 1 || !strings.Contains(problems[0].String(), tc.want) {
				t.Fatalf("got %v, want %s", problems, tc.want)
			}
			if now := plan.At(date(t, "2026-07-01T12:00:00Z"), v1alpha1.ScaleSpec{}); len(now.Active) != 2 {
				t.Errorf("the others don't hold: %v", now)
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	for name, tc := range map[string]struct {
		schedules []v1alpha1.Schedule
		want      []string
	}{
		"none": {nil, nil},
		"overlap in which both have a say": {[]v1alpha1.Schedule{
			weekly("a", "", "08:00", "18:00", minOne), weekly("b", "", "12:00", "20:00", minOne)}, nil},
		"another number": {[]v1alpha1.Schedule{
			weekly("a", "", "08:00", "18:00", minOne), weekly("b", "", "12:00", "13:00", maxZero)}, nil},
		"shadowed": {
			[]v1alpha1.Schedule{weekly("a", "", "08:00", "18:00", minOne), weekly("b", "", "12:00", "13:00", minOne)},
			[]string{"spec.scale.schedules[1]: schedule b has no effect: whenever it holds, a sets the same numbers and is before it in the list. Put it first, or remove it"}},
		"shadowed by two": {
			[]v1alpha1.Schedule{weekly("a", "", "08:00", "12:30", minOne), weekly("b", "", "12:30", "18:00", minOne), byCron("c", "", "0 12 * * *", time.Hour, minOne)},
			[]string{"spec.scale.schedules[2]: schedule c has no effect: whenever it holds, a or b sets the same numbers and is before it in the list. Put it first, or remove it"}},
		"clocks differ only for a week": {
			[]v1alpha1.Schedule{weekly("a", "Europe/Berlin", "08:00", "18:00", minOne), weekly("b", "America/New_York", "02:00", "12:00", minOne)}, nil},
		"over": {
			[]v1alpha1.Schedule{atOnce(t, "a", "2025-12-24T00:00:00+01:00", "2025-12-27T00:00:00+01:00", maxZero)},
			[]string{"spec.scale.schedules[0]: schedule a is over since 2025-12-26T23:00:00Z: remove it"}},
		"not yet": {[]v1alpha1.Schedule{atOnce(t, "a", "2030-12-24T00:00:00Z", "2030-12-27T00:00:00Z", maxZero)}, nil},
		"more changes than are looked at": {
			[]v1alpha1.Schedule{byCron("a", "", "*/2 * * * *", time.Minute, minOne), byCron("b", "", "*/2 * * * *", time.Minute, minOne)}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, w := range plan(t, tc.schedules...).Warnings(date(t, "2026-07-01T00:00:00Z")) {
				got = append(got, w.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// Without this, each evaluation of such a schedule would search nine years for its end.
func TestARecurrenceWithoutEndIsRecognized(t *testing.T) {
	for start, tc := range map[string]struct {
		lasts time.Duration
		want  bool
	}{
		"* * * * *":           {time.Minute, true},
		"*/30 * * * *":        {30 * time.Minute, true},
		"*/31 * * * *":        {30 * time.Minute, false},
		"0 0 * * *":           {24 * time.Hour, true},
		"0 0 * * ?":           {24*time.Hour - time.Minute, false},
		"0 6,18 1-31 * 0-6":   {12 * time.Hour, true},
		"0 6,19 * * *":        {12 * time.Hour, false},
		"0 0 1-30 * *":        {24 * time.Hour, false},
		"0 0 * 1-11 *":        {24 * time.Hour, false},
		"0 0 * * MON-SAT":     {24 * time.Hour, false},
		"0 0 1-31 * MON":      {24 * time.Hour, true},
		"0 0 1,15 * SUN-SAT":  {24 * time.Hour, true},
		"15 23 * 1-12 *":      {25 * time.Hour, true},
		"0 12 1,15 * MON-FRI": {48 * time.Hour, false},
	} {
		t.Run(start, func(t *testing.T) {
			found, problem := compileCron(time.UTC, byCron("a", "UTC", start, tc.lasts, minOne).Cron)
			if problem != nil {
				t.Fatal(problem)
			}
			compiled := found.(*recurrence)
			if compiled.always != tc.want {
				t.Errorf("always is %t, want %t", compiled.always, tc.want)
			}
			compiled.always = false // search
			now := time.Date(2026, 10, 25, 12, 30, 0, 0, time.UTC)
			if isActive, until := compiled.shown(now); tc.want != (isActive && until.IsZero()) {
				t.Errorf("the search returns %t until %s", isActive, until)
			}
		})
	}
}
