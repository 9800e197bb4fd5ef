// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package gitsource

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// filesOf returns the files of a revision with their contents.
func filesOf(t *testing.T, r *Revision) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := fs.WalkDir(r.FS, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(r.FS, name)
		files[name] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestDefinitionsOfARevisionAreReadWithoutTheWorkTree(t *testing.T) {
	r := newRepo(t)
	first := r.commit(map[string]string{
		"README": "r", "infra/cue.mod/module.cue": "m", "infra/pools/linux.cue": "1", "infra/shared.cue": "s", "plain/a.cue": "a",
	})
	second := r.commit(map[string]string{"infra/pools/linux.cue": "2", "new/b.cue": "b"})
	if err := os.WriteFile(filepath.Join(r.dir, "infra", "pools", "linux.cue"), []byte("work tree"), 0o600); err != nil {
		t.Fatal(err)
	}
	module := func(linux string) map[string]string {
		return map[string]string{"cue.mod/module.cue": "m", "pools/linux.cue": linux, "shared.cue": "s"}
	}
	tests := map[string]struct {
		folder, revision string
		want             Revision
		files            map[string]string
	}{
		"a folder of a module":    {"infra/pools", "HEAD", Revision{Commit: second, Module: "infra", Path: "pools"}, module("2")},
		"the module itself":       {"infra", "HEAD~1", Revision{Commit: first, Module: "infra", Path: "."}, module("1")},
		"by a branch":             {"infra", "main", Revision{Commit: second, Module: "infra", Path: "."}, module("2")},
		"by a short hash":         {"infra", first[:8], Revision{Commit: first, Module: "infra", Path: "."}, module("1")},
		"without a module":        {"plain", first, Revision{Commit: first, Module: "plain", Path: "."}, map[string]string{"a.cue": "a"}},
		"a folder that came late": {"new", first, Revision{Commit: first, Module: "new", Path: ".", Absent: true}, map[string]string{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ReadRevision(t.Context(), filepath.Join(r.dir, tt.folder), tt.revision, Limits{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.files, filesOf(t, got)); diff != "" {
				t.Error(diff)
			}
			tt.want.Top, got.FS = got.Top, nil
			if diff := cmp.Diff(tt.want, *got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestARevisionThatCantBeReadSaysWhy(t *testing.T) {
	r, unborn := newRepo(t), newRepo(t)
	r.commit(map[string]string{"pools.cue": "0123456789"})
	tests := map[string]struct {
		folder, revision string
		limits           Limits
		want             error
		says             string
	}{
		"no repository":  {t.TempDir(), "HEAD", Limits{}, ErrNotFound, " is in no Git repository: compare two folders, or run git init and commit"},
		"no revision":    {r.dir, "v9", Limits{}, ErrRefNotFound, `: the repository has no revision "v9"; a shallow clone has to fetch it first`},
		"too far back":   {r.dir, "HEAD~99", Limits{}, ErrRefNotFound, `: the repository has no revision "HEAD~99"; a shallow clone has to fetch it first`},
		"not a revision": {r.dir, "--all", Limits{}, ErrRefNotFound, ""},
		"no commit":      {unborn.dir, "HEAD", Limits{}, ErrRefNotFound, ": the repository has no commit yet: make one, or compare two folders"},
		"too large":      {r.dir, "HEAD", Limits{FileBytes: 9}, ErrTooLarge, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := ReadRevision(t.Context(), tt.folder, tt.revision, tt.limits); !errors.Is(err, tt.want) || !strings.HasSuffix(err.Error(), tt.says) {
				t.Errorf("got %v, want %v%s", err, tt.want, tt.says)
			}
		})
	}
}
