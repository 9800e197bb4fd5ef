// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFmtFormatsCUEAndRego(t *testing.T) {
	folder := t.TempDir()
	files := map[string][2]string{
		"a.cue":             {"package a\nx:   1\n", "package a\n\nx: 1\n"},
		"policies/p.rego":   {"package p\na:=1\n", "package p\n\na := 1\n"},
		"cue.mod/pkg/b.cue": {"package b\nx:   1\n", "package b\nx:   1\n"},
		".hidden/c.cue":     {"package c\nx:   1\n", "package c\nx:   1\n"},
		"d.yaml":            {"a:   1\n", "a:   1\n"},
	}
	for name, text := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text[0]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const names = "a.cue\npolicies/p.rego\n"
	steps := []struct {
		args string
		want outcome
	}{
		{"fmt --check", outcome{stdout: names, stderr: "Error: 2 files not formatted: run corral fmt\n", code: exitError}},
		{"fmt", outcome{stdout: names}},
		{"fmt --check a.cue policies", outcome{}},
	}
	for _, step := range steps {
		if got := corral(t, folder, strings.Fields(step.args)...); got != step.want {
			t.Errorf("%s: got %+v, want %+v", step.args, got, step.want)
		}
	}
	for name, text := range files {
		if got, err := os.ReadFile(filepath.Join(folder, name)); err != nil || string(got) != text[1] {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestFmtReportsAFileThatItCannotParse(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "a.cue"), []byte("a: {\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := corral(t, folder, "fmt"); got.code != exitError || !strings.Contains(got.stderr, "a.cue: ") {
		t.Errorf("got %+v", got)
	}
}
