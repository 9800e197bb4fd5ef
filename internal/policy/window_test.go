// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"testing"
	"time"

	"github.com/corral-dev/corral/internal/schedule"
)

func TestWindowsAt(t *testing.T) {
	berlin, err := schedule.Location("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	office := window{days: [7]bool{time.Monday: true, time.Tuesday: true}, from: 8 * 60, to: 18 * 60}
	night := window{days: everyDay, from: 22 * 60, to: 6 * 60}
	skipped := window{days: everyDay, from: 2*60 + 10, to: 2*60 + 50}
	for name, tc := range map[string]struct {
		now     string
		windows []window
		open    bool
		until   string
	}{
		"none":                              {"2026-07-06T12:00:00Z", nil, false, ""},
		"on no day":                         {"2026-07-06T12:00:00Z", []window{{from: 60, to: 120}}, false, ""},
		"open":                              {"2026-07-06T12:00:00Z", []window{office}, true, "2026-07-06T16:00:00Z"},
		"the end is not in it":              {"2026-07-07T16:00:00Z", []window{office}, false, "2026-07-13T06:00:00Z"},
		"past midnight":                     {"2026-07-06T01:00:00Z", []window{office, night}, true, "2026-07-06T04:00:00Z"},
		"the last of those that are open":   {"2026-07-06T15:30:00Z", []window{office, {days: everyDay, from: 17 * 60, to: 20 * 60}}, true, "2026-07-06T18:00:00Z"},
		"in the skipped hour is not":        {"2026-03-29T00:30:00Z", []window{skipped}, false, "2026-03-30T00:10:00Z"},
		"shown twice: open the first time":  {"2026-10-25T00:20:00Z", []window{skipped}, true, "2026-10-25T00:50:00Z"},
		"shown twice: shut the second time": {"2026-10-25T01:20:00Z", []window{skipped}, false, "2026-10-26T01:10:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			now, err := time.Parse(time.RFC3339, tc.now)
			if err != nil {
				t.Fatal(err)
			}
			open, until := windowsAt(now.In(berlin), tc.windows)
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
