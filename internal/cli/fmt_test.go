// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"maps"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// fmtFiles has files that fmt must format, and files that it must leave unchanged.
var fmtFiles = map[string]string{
	"pools/a.cue":     "package pools\na:   1 // one\n",
	"policies/a.rego": "package a\nallow if  input.a\n",
	"pools/b.cue":     "package pools\n\nb: 1\n",
	"empty.rego":      "\n",
	"cue.mod/c.cue":   "c:   1\n",
	"_old/c.cue":      "c:   1\n",
	".hidden/c.cue":   "c:   1\n",
	"values.yaml":     "a:   1\n",
}

func fmtFolder(t *testing.T, more map[string]string) string {
	t.Helper()
	files := maps.Clone(fmtFiles)
	maps.Copy(files, more)
	return folderWith(t, files)
}

func TestFmtChecksFormatsAndIsDone(t *testing.T) {
	folder := fmtFolder(t, nil)
	const names = "policies/a.rego\npools/a.cue\n"
	unformatted := "Error: there are changes: corral fmt formats 2 files\n"
	for _, tc := range []struct {
		args []string
		want outcome
	}{
		{[]string{"fmt", "--check"}, outcome{names, unformatted, exitChanged}},
		{[]string{"fmt", "--diff", "pools", "policies"}, outcome{"--- pools/a.cue.orig\n+++ pools/a.cue\n@@ -1,2 +1,3 @@\n package pools\n-a:   1 // one\n+\n+a: 1 // one\n" +
			"--- policies/a.rego.orig\n+++ policies/a.rego\n@@ -1,2 +1,3 @@\n package a\n-allow if  input.a\n+\n+allow if input.a\n", unformatted, exitChanged}},
		{[]string{"fmt"}, outcome{names, "", exitOK}},
		{[]string{"fmt", "--check"}, outcome{}},
		{[]string{"fmt", "-d", "pools/a.cue"}, outcome{}},
	} {
		if diff := cmp.Diff(tc.want, corral(t, folder, tc.args...), cmp.AllowUnexported(outcome{})); diff != "" {
			t.Errorf("%v: %s", tc.args, diff)
		}
	}
	for name, want := range map[string]string{"pools/a.cue": "package pools\n\na: 1 // one\n", "policies/a.rego": "package a\n\nallow if input.a\n", "cue.mod/c.cue": "c:   1\n"} {
		if got := readFile(t, filepath.Join(folder, name)); got != want {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

// A syntax error is reported at its position. Other files are formatted nevertheless.
func TestFmtLeavesFilesThatDoNotParse(t *testing.T) {
	folder := fmtFolder(t, map[string]string{"pools/bad.cue": "package pools\n\na: {\n", "policies/bad.rego": "package a\n\nallow if {\n"})
	want := outcome{"policies/a.rego\npools/a.cue\n", "Error: policies/bad.rego:4:1: unexpected eof token\npools/bad.cue:3:6: expected '}', found 'EOF'\n", exitError}
	if diff := cmp.Diff(want, corral(t, folder, "fmt"), cmp.AllowUnexported(outcome{})); diff != "" {
		t.Error(diff)
	}
	for arg, want := range map[string]string{"values.yaml": "Error: values.yaml is neither a .cue nor a .rego file\n", "none": "Error: lstat none: no such file or directory\n"} {
		if got := corral(t, folder, "fmt", arg); got.code != exitError || got.stderr != want {
			t.Errorf("%s: got %+v", arg, got)
		}
	}
}

// The files that init writes are formatted.
func TestFmtLeavesWhatInitWrites(t *testing.T) {
	folder := t.TempDir()
	corral(t, folder, "init", "pools", "--url", "https://github.com/acme")
	corral(t, folder, "init", "guard", "--guard", "--url", "https://github.com/acme")
	if diff := cmp.Diff(outcome{}, corral(t, folder, "fmt", "--check"), cmp.AllowUnexported(outcome{})); diff != "" {
		t.Error(diff)
	}
}
