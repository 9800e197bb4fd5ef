// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A working tree may contain files that no clone has. A review must not include them, because the cluster does not
// read them.
func TestWhatNoSourceHasIsToldAndNotReviewed(t *testing.T) {
	const ignored = "pools/my.local.cue: warning: Git ignores the file, so no source has it\n"
	const refused = "policies/guard: a submodule, which is not fetched; commit the files themselves, or compile a folder without it\n"
	folder := repositoryOf(t, map[string]string{".gitignore": "*.local.cue\n"})
	git := func(args ...string) { t.Helper(); gitIn(t, folder, args...) }
	git("init", "-q", "-b", "main")
	git("add", ".")
	git("commit", "-qm", "first")
	linux := readFile(t, filepath.Join(folder, "pools/linux.cue"))
	for name, text := range map[string]string{
		"pools/my.local.cue": strings.ReplaceAll(linux, "linux-small", "local"), "pools/new.cue": strings.ReplaceAll(linux, "linux-small", "new"),
	} {
		writeFile(t, filepath.Join(folder, name), text)
	}
	vet := outcome{stdout: "ok: 3 pools, 1 connection\n", stderr: ignored}
	if diff := cmp.Diff(vet, corral(t, folder, "vet"), cmp.AllowUnexported(outcome{})); diff != "" {
		t.Error(diff)
	}
	if got := corral(t, folder, "build"); got.code != exitOK || got.stderr != ignored {
		t.Errorf("build: got %+v", got)
	}
	got := corral(t, folder, "review", "--at", reviewedAt)
	if !strings.Contains(got.stdout, "; 1 pool the same\n") || !strings.Contains(got.stdout, "Git ignores pools/my.local.cue: left out, as no source has it.") || strings.Contains(got.stdout, "local (") {
		t.Errorf("review: got %+v", got)
	}

	writeFile(t, filepath.Join(folder, ".gitignore"), "*.cue\n")
	if got, want := corral(t, folder, "build").stderr, strings.Replace(ignored, "the file", "the file and 1 more", 1); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := os.Remove(filepath.Join(folder, "pools/new.cue")); err != nil {
		t.Fatal(err)
	}

	git("init", "-q", "policies/guard")
	writeFile(t, filepath.Join(folder, "policies/guard/guard.rego"), "package corral.template\n\nwarn contains \"x\" if false\n")
	gitIn(t, filepath.Join(folder, "policies/guard"), "add", ".")
	gitIn(t, filepath.Join(folder, "policies/guard"), "commit", "-qm", "guard")
	git("add", "policies/guard")
	if got := corral(t, folder, "build"); got.code != exitOK || got.stderr != ignored+strings.Replace(refused, ": a", ": warning: a", 1) {
		t.Errorf("build with a submodule: got %+v", got)
	}
	git("commit", "-qm", "guard")
	for _, args := range [][]string{{"--base", "HEAD^1"}, {"--base", "HEAD^1", "--head", "HEAD"}} {
		if got := corral(t, folder, append([]string{"review"}, args...)...); got.code != exitError || !strings.Contains(got.stdout, refused) {
			t.Errorf("review %v: got %+v", args, got)
		}
	}
}

// Links to folders are not followed, so the cluster does not see the files behind one. Every command reports such
// a link.
func TestALinkToAFolderIsToldByEachCommand(t *testing.T) {
	const refused = "pools/team: a link to a folder, which is not followed; commit the folder itself, or make its name begin with a dot"
	folder := repositoryOf(t, nil)
	gitIn(t, folder, "init", "-q", "-b", "main")
	gitIn(t, folder, "add", ".")
	gitIn(t, folder, "commit", "-qm", "first")
	if err := os.Symlink("../policies", filepath.Join(folder, "pools/team")); err != nil {
		t.Fatal(err)
	}
	check := func(args ...string) {
		t.Helper()
		if got := corral(t, folder, args...); got.code != exitError || !strings.Contains(got.stdout+got.stderr, refused) {
			t.Errorf("%v: got %+v", args, got)
		}
	}
	check("vet")
	check("build")
	check("review")
	gitIn(t, folder, "add", ".")
	gitIn(t, folder, "commit", "-qm", "link")
	check("review", "--base", "HEAD^1", "--head", "HEAD")
}
