// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// golden compares lines with a file in testdata; UPDATE_GOLDEN=1 rewrites that.
func golden(t *testing.T, name string, lines []string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	got := strings.Join(lines, "\n") + "\n"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("UPDATE_GOLDEN=1 accepts this:\n%s", diff)
	}
}

func TestTheViewShowsWhatThePoolsSay(t *testing.T) {
	f := frame{
		Elapsed: 83 * time.Second, Done: 57, Running: 12, Waiting: 3, All: 120,
		Pools: []poolRow{
			{Name: "linux-large", Jobs: 3, Desired: 3, Busy: 2, Starting: 1, Max: 8, Ready: true, Why: "3 jobs"},
			{Name: "linux-small", Jobs: 12, Desired: 12, Busy: 12, Max: 6, Ready: true, Why: "12 jobs accepted before max fell to 6 are served"},
			{Name: "warm", Max: 10, Message: "GitHub can't be reached\nand more"},
		},
	}
	for name, width := range map[string]int{"view.txt": 100, "view-narrow.txt": 60} {
		golden(t, name, render(f, width, false))
	}
	golden(t, "view-colours.txt", render(f, 100, true))
	golden(t, "view-empty.txt", render(frame{All: 1, Done: 1}, 100, false))
}

func TestReadinessTellsChangesOnly(t *testing.T) {
	good, bad := poolRow{Name: "a", Ready: true, Message: "fine"}, poolRow{Name: "a", Message: "GitHub is away\nfor long"}
	tests := map[string]struct {
		before, after poolRow
		want          []string
	}{
		"still ready":   {before: good, after: good},
		"still unready": {before: bad, after: bad},
		"lost":          {before: good, after: bad, want: []string{"a is not ready: GitHub is away"}},
		"regained":      {before: bad, after: good, want: []string{"a is ready: fine"}},
		"new":           {before: poolRow{Name: "b"}, after: good},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, readiness([]poolRow{tc.before}, []poolRow{tc.after})); diff != "" {
				t.Error(diff)
			}
		})
	}
}
