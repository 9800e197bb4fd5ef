// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/corral-dev/corral/test/golden"
)

// compare compares lines with a file in testdata.
func compare(t *testing.T, name string, lines []string) {
	t.Helper()
	golden.Compare(t, filepath.Join("testdata", name), strings.Join(lines, "\n")+"\n")
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
		compare(t, name, render(f, width, false))
	}
	compare(t, "view-colours.txt", render(f, 100, true))
	compare(t, "view-empty.txt", render(frame{All: 1, Done: 1}, 100, false))
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
