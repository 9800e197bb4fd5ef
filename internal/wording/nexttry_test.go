// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package wording

import (
	"testing"
	"time"
)

func TestTheNextTryIsToldByTheClock(t *testing.T) {
	at := time.Date(2026, 7, 1, 19, 57, 5, 999, time.FixedZone("CEST", 2*60*60))
	message := "GitHub answered 500; " + NextTry(at)
	if message != "GitHub answered 500; next try 17:57:05Z" {
		t.Error(message)
	}
	if got := WithoutNextTry(message + " (RequestId 1)"); got != "GitHub answered 500 (RequestId 1)" {
		t.Error(got)
	}
	for name, tc := range map[string]struct {
		message string
		now     string
		want    string // "" for none
	}{
		"in a while":           {message, "2026-07-01T17:57:00Z", "2026-07-01T17:57:05Z"},
		"just now":             {message, "2026-07-01T17:58:05Z", "2026-07-01T17:57:05Z"},
		"over":                 {message, "2026-07-01T17:58:06Z", ""},
		"after midnight":       {"next try 00:00:10Z", "2026-07-01T23:59:50Z", "2026-07-02T00:00:10Z"},
		"read in another zone": {message, "2026-07-02T01:57:00+08:00", "2026-07-01T17:57:05Z"},
		"at the latest":        {NextTryBy(at), "2026-07-01T17:57:00Z", "2026-07-01T17:57:05Z"},
		"no time":              {"next try 27:57:05Z", "2026-07-01T17:57:00Z", ""},
		"none":                 {"GitHub answered 500", "2026-07-01T17:57:00Z", ""},
	} {
		t.Run(name, func(t *testing.T) {
			now, err := time.Parse(time.RFC3339, tc.now)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if next := NextTryIn(tc.message, now); !next.IsZero() {
				got = next.Format(time.RFC3339)
			}
			if got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
