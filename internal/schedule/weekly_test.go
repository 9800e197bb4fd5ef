// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package schedule

import (
	"testing"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
)

func TestWeekly(t *testing.T) {
	berlin, err := Location("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	office := v1alpha1.WeeklyWindow{Days: []v1alpha1.Weekday{"Monday", "Tuesday"}, From: "08:00", To: "18:00"}
	night := v1alpha1.WeeklyWindow{From: "22:00", To: "06:00"}
	skipped := v1alpha1.WeeklyWindow{From: "02:10", To: "02:50"}
	always := v1alpha1.WeeklyWindow{From: "00:00", To: "24:00"}
	for name, tc := range map[string]struct {
		now     string
		windows []v1alpha1.WeeklyWindow
		open    bool
		until   string
	}{
		"none":                              {"2026-07-06T12:00:00Z", nil, false, ""},
		"always":                            {"2026-07-06T12:00:00Z", []v1alpha1.WeeklyWindow{always}, true, ""},
		"always, and one that ends":         {"2026-07-06T12:00:00Z", []v1alpha1.WeeklyWindow{office, always}, true, ""},
		"past the end of the week":          {"2026-07-05T21:00:00Z", []v1alpha1.WeeklyWindow{{Days: []v1alpha1.Weekday{"Sunday"}, From: "22:00", To: "06:00"}}, true, "2026-07-06T04:00:00Z"},
		"while the clock is put back":       {"2026-10-24T21:00:00Z", []v1alpha1.WeeklyWindow{night}, true, "2026-10-25T05:00:00Z"},
		"open":                              {"2026-07-06T12:00:00Z", []v1alpha1.WeeklyWindow{office}, true, "2026-07-06T16:00:00Z"},
		"the end is not in it":              {"2026-07-07T16:00:00Z", []v1alpha1.WeeklyWindow{office}, false, "2026-07-13T06:00:00Z"},
		"past midnight":                     {"2026-07-06T01:00:00Z", []v1alpha1.WeeklyWindow{office, night}, true, "2026-07-06T04:00:00Z"},
		"the last of those that are open":   {"2026-07-06T15:30:00Z", []v1alpha1.WeeklyWindow{office, {From: "17:00", To: "20:00"}}, true, "2026-07-06T18:00:00Z"},
		"in the skipped hour is not":        {"2026-03-29T00:30:00Z", []v1alpha1.WeeklyWindow{skipped}, false, "2026-03-30T00:10:00Z"},
		"shown twice: open the first time":  {"2026-10-25T00:20:00Z", []v1alpha1.WeeklyWindow{skipped}, true, "2026-10-25T00:50:00Z"},
		"shown twice: shut the second time": {"2026-10-25T01:20:00Z", []v1alpha1.WeeklyWindow{skipped}, false, "2026-10-26T01:10:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			now, err := time.Parse(time.RFC3339, tc.now)
			if err != nil {
				t.Fatal(err)
			}
			open, until, err := Weekly(berlin, tc.windows, now)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if !until.IsZero() {
				got = until.UTC().Format(time.RFC3339)
			}
			if open != tc.open || got != tc.until {
				t.Errorf("got %t until %s, want %t until %s", open, got, tc.open, tc.until)
			}
		})
	}
}

func TestWeeklyNamesTheWindow(t *testing.T) {
	_, _, err := Weekly(time.UTC, []v1alpha1.WeeklyWindow{{From: "08:00", To: "18:00"}, {From: "8", To: "18:00"}}, time.Unix(0, 0))
	if want := `window 1: from: it is HH:MM, not "8"`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
