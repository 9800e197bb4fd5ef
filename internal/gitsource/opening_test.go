// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package gitsource

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// runGit runs the real git, with no configuration but the repository's.
func runGit(t *testing.T, dir string, args ...string) string {
	t.Helper()
	c := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "commit.gpgsign=false", "-c", "gc.auto=0", "-c", "maintenance.auto=false"}, args...)...)
	c.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// twoCommits creates a repository in which a.cue is 1, then 2.
func twoCommits(t *testing.T, dir string, init ...string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "more"), 0o700); err != nil {
		t.Fatal(err)
	}
	runGit(t, dir, append([]string{"init", "-q", "-b", "main"}, init...)...)
	for _, content := range []string{"1", "2"} {
		for _, name := range []string{"a.cue", "more/b.cue"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		runGit(t, dir, "add", ".")
		runGit(t, dir, "commit", "-qm", content)
	}
}

func TestRepositoriesOfEachKindAreReadOrRefusedWithTheReason(t *testing.T) {
	const shared = "objects/info/alternates"
	for name, tc := range map[string]struct {
		// make creates the folder clone from src, both in dir.
		make   func(dir string)
		sparse string
		says   string
	}{
		"a clone":         {make: func(dir string) { runGit(t, dir, "clone", "-q", "src", "clone") }},
		"with alternates": {make: func(dir string) { runGit(t, dir, "clone", "-q", "--shared", "src", "clone") }},
		"with relative ones": {make: func(dir string) {
			runGit(t, dir, "clone", "-q", "--shared", "src", "clone")
			if err := os.WriteFile(filepath.Join(dir, "clone/.git", shared), []byte("# beside it\n../../../src/.git/objects\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}},
		"with a slash at the end": {make: func(dir string) {
			runGit(t, dir, "clone", "-q", "--shared", "src", "clone")
			if err := os.WriteFile(filepath.Join(dir, "clone/.git", shared), []byte(filepath.Join(dir, "src/.git/objects")+"/\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}},
		"alternates that are gone": {make: func(dir string) {
			runGit(t, dir, "clone", "-q", "--shared", "src", "clone")
			if err := os.Rename(filepath.Join(dir, "src"), filepath.Join(dir, "gone")); err != nil {
				t.Fatal(err)
			}
		}, says: "it shares objects with another: stat "},
		"another work tree": {make: func(dir string) { runGit(t, dir, "-C", "src", "worktree", "add", "-q", "../clone") }},
		"another one of a clone with alternates": {make: func(dir string) {
			runGit(t, dir, "clone", "-q", "--shared", "src", "first")
			runGit(t, dir, "-C", "first", "worktree", "add", "-q", "../clone")
		}},
		"a shared clone of a shared clone, with another work tree": {make: func(dir string) {
			runGit(t, dir, "clone", "-q", "--shared", "src", "first")
			runGit(t, dir, "clone", "-q", "--shared", "first", "second")
			if err := os.WriteFile(filepath.Join(dir, "second/.git", shared), []byte("../../../first/.git/objects\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			runGit(t, dir, "-C", "second", "worktree", "add", "-q", "../clone")
		}},
		"a submodule": {make: func(dir string) {
			runGit(t, dir, "init", "-q", "above")
			runGit(t, dir, "-C", "above", "-c", "protocol.file.allow=always", "submodule", "add", "-q", filepath.Join(dir, "src"), "below")
			if err := os.Symlink("above/below", filepath.Join(dir, "clone")); err != nil {
				t.Fatal(err)
			}
		}},
		"a clone without blobs": {make: func(dir string) {
			runGit(t, dir, "-C", "src", "config", "uploadpack.allowFilter", "true")
			runGit(t, dir, "clone", "-q", "--filter=blob:none", "file://"+filepath.Join(dir, "src"), "clone")
		}, says: "reading a.cue: object not found; the clone leaves out objects of origin until Git needs them (--filter): run git fetch --refetch --no-filter, or clone without"},
		"one that got its blobs": {make: func(dir string) {
			runGit(t, dir, "-C", "src", "config", "uploadpack.allowFilter", "true")
			runGit(t, dir, "clone", "-q", "--filter=blob:none", "file://"+filepath.Join(dir, "src"), "clone")
			runGit(t, dir, "-C", "clone", "fetch", "-q", "--refetch", "--no-filter")
		}},
		"a sparse checkout": {make: func(dir string) {
			runGit(t, dir, "clone", "-q", "--sparse", "src", "clone")
		}, sparse: "more/b.cue"},
		"a bare repository": {make: func(dir string) { runGit(t, dir, "clone", "-q", "--bare", "src", "clone") }, says: ": clone it, and compare there"},
		"SHA-256":           {make: func(dir string) { twoCommits(t, filepath.Join(dir, "clone"), "--object-format=sha256") }, says: "uses SHA-256 object names, which are not supported: compare two folders"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			twoCommits(t, filepath.Join(dir, "src"))
			tc.make(dir)
			clone := filepath.Join(dir, "clone")
			got, err := ReadRevision(t.Context(), clone, "HEAD~1", Limits{})
			if tc.says != "" {
				if err == nil || !strings.Contains(err.Error(), tc.says) {
					t.Fatalf("got %v, want %s", err, tc.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if short, err := ReadRevision(t.Context(), clone, got.Commit[:7], Limits{}); err != nil || short.Commit != got.Commit {
				t.Errorf("by the beginning of its hash: %v", err)
			}
			if files := filesOf(t, got); files["a.cue"] != "1" || files["more/b.cue"] != "1" {
				t.Errorf("files %v", files)
			}
			if missing, err := Sparse(clone); err != nil || strings.Join(missing, " ") != tc.sparse {
				t.Errorf("left out by a sparse checkout: %v, %v", missing, err)
			}
			if _, _, err := LeftOut(clone, []string{"a.cue"}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestASparseIndexIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "src")
	twoCommits(t, dir)
	runGit(t, dir, "sparse-checkout", "set", "--cone", "--sparse-index")
	if _, err := Sparse(dir); err == nil || !strings.Contains(err.Error(), "run git sparse-checkout reapply --no-sparse-index") {
		t.Errorf("got %v", err)
	}
}

// Each revision is either read as Git itself reads it, or refused.
func TestRevisionsAreThoseOfGit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "src")
	twoCommits(t, dir)
	first := runGit(t, dir, "rev-parse", "HEAD~1")
	runGit(t, dir, "checkout", "-qb", "side", "HEAD~1")
	runGit(t, dir, "commit", "-q", "--allow-empty", "-m", "beside")
	runGit(t, dir, "checkout", "-q", "main")
	runGit(t, dir, "merge", "-q", "--no-ff", "-m", "both", "side")
	runGit(t, dir, "tag", "-am", "annotated", "v1")
	runGit(t, dir, "tag", "-am", "of a tag", "v1-again", "v1")
	runGit(t, dir, "tag", "side", "HEAD~1") // Git prefers the tag, and warns
	runGit(t, dir, "branch", first[:7])     // also the beginning of a hash: Git prefers the branch
	runGit(t, dir, "update-ref", "refs/remotes/origin/main", first)
	runGit(t, dir, "symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")
	for _, revision := range []string{
		"HEAD", "@", "@~1", "main", "heads/main", "refs/heads/main", "HEAD^2", "HEAD^2~1", "HEAD^^", "HEAD~2", "HEAD~0", "HEAD^0", "v1", "v1^{}", "v1^{commit}~1", "v1-again",
		"side", "heads/side", "origin/main", "origin", first, strings.ToUpper(first[:12]), first[:7], "ORIG_HEAD",
	} {
		want := runGit(t, dir, "rev-parse", "-q", "--verify", revision+"^{commit}")
		want = want[strings.LastIndex(want, "\n")+1:]
		if got, err := ReadRevision(t.Context(), dir, revision, Limits{}); err != nil || got.Commit != want {
			t.Errorf("%s: got %+v, %v; git says %s", revision, got, err, want)
		}
	}
	for _, revision := range []string{
		"main@{1}", "HEAD@{1}", "@{-1}", "main@{upstream}", "HEAD@{yesterday}", "HEAD:a.cue", "HEAD:nosuch", ":a.cue", ":/beside", "HEAD^{tree}", "HEAD^{/beside}", "HEAD^@", "HEAD^!", "HEAD^-",
		"HEAD~1..HEAD", "v1-1-g" + first[:7], "^HEAD", "--all", "HEAD ", "", "HEAD~99", "HEAD^3", "HEAD~99999999999999999999", "HEAD~1:", "main\x00",
	} {
		if got, err := ReadRevision(t.Context(), dir, revision, Limits{}); !errors.Is(err, ErrRefNotFound) {
			t.Errorf("%q is resolved to %+v, %v", revision, got, err)
		}
	}
}
