// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package gobuild

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTheEstimateWaitsForATenth(t *testing.T) {
	for name, tc := range map[string]struct {
		done, all int
		elapsed   time.Duration
		want      string
	}{
		"at first":         {0, 1000, 0, "0 of 1000 packages"},
		"too early":        {99, 1000, time.Minute, "99 of 1000 packages"},
		"a quarter":        {250, 1000, 2 * time.Minute, "250 of 1000 packages, about 7 min left"},
		"almost done":      {900, 1000, 2 * time.Minute, "900 of 1000 packages, less than a minute left"},
		"linking the rest": {1000, 1000, 2 * time.Minute, "1000 of 1000 packages, linking"},
	} {
		if got := progress(tc.done, tc.all, tc.elapsed); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// recorder is a terminal.
type recorder struct {
	strings.Builder
	statuses []string
}

func (r *recorder) Status(line string) { r.statuses = append(r.statuses, line) }

func TestABuildCountsItsPackages(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.test/m\n\ngo 1.26\n")
	write("sub/sub.go", "package sub\n\n// "+t.TempDir()+"\nvar X = 1\n") // the folder makes it a package that no cache has
	write("main.go", "package main\n\nimport \"example.test/m/sub\"\n\nfunc main() { println(sub.X) }\n")
	build := Build{Title: "Compiling", Dir: dir, Env: os.Environ(), Verb: "build", Flags: []string{"-o", filepath.Join(dir, "m")}, Args: []string{"."}}
	first, second := &recorder{}, &recorder{}
	if err := build.Run(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(first.String(), "Compiling: 2 packages in ") || !slices.Equal(first.statuses[:2], []string{"Compiling …", "Compiling: 0 of 2 packages"}) {
		t.Errorf("said %q, showed %q", first.String(), first.statuses)
	}
	write("sub/sub.go", "package sub\n\nvar X int = \"one\"\n")
	err := build.Run(t.Context(), second)
	if err == nil || !strings.Contains(err.Error(), "cannot use \"one\"") {
		t.Errorf("a build with a mistake returned %v", err)
	}
}
