// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package gitsource

import (
	"path/filepath"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/index"
	"github.com/google/go-cmp/cmp"
)

// The rules of each .gitignore apply to its folder. Tracked files are in a clone, even if a rule matches them.
func TestIgnoredFilesOfAWorkTree(t *testing.T) {
	r := newRepo(t)
	r.commit(map[string]string{"infra/tracked.local.cue": "t"})
	r.commit(map[string]string{".gitignore": "*.local.cue\n/infra/gen/\n", "infra/pools/.gitignore": "secret.cue\n!kept.local.cue\n"})
	files := []string{"tracked.local.cue", "a.local.cue", "gen/b.cue", "new.cue", "pools/secret.cue", "pools/kept.local.cue", "secret.cue"}
	for name, want := range map[string][]string{
		filepath.Join(r.dir, "infra"): {"a.local.cue", "gen/b.cue", "pools/secret.cue"},
		t.TempDir():                   nil,
	} {
		submodules, ignored, err := LeftOut(name, files)
		if diff := cmp.Diff(want, ignored); diff != "" || err != nil || submodules != nil {
			t.Errorf("%s: %v, %v, %s", name, err, submodules, diff)
		}
	}
}

// Submodules outside of the folder are not reported.
func TestSubmodulesOfAWorkTree(t *testing.T) {
	r := newRepo(t)
	commit := plumbing.NewHash(r.commit(map[string]string{"infra/pools/a.cue": "a"}))
	staged, err := r.git.Storer.Index()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"infra/policies/guard", "elsewhere"} {
		staged.Entries = append(staged.Entries, &index.Entry{Name: name, Mode: filemode.Submodule, Hash: commit})
	}
	if err := r.git.Storer.SetIndex(staged); err != nil {
		t.Fatal(err)
	}
	submodules, _, err := LeftOut(filepath.Join(r.dir, "infra"), nil)
	if diff := cmp.Diff([]string{"policies/guard"}, submodules); diff != "" || err != nil {
		t.Errorf("%v, %s", err, diff)
	}
}
