// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package memfs

import (
	"errors"
	"fmt"
	"io/fs"
	"testing"
	"testing/fstest"
	"time"
)

func TestFilesAreReadBack(t *testing.T) {
	files := FS{}
	for _, tc := range []struct {
		name  string
		added int
	}{{"a/b/c.cue", 3}, {"a/d.cue", 1}, {"a-b", 1}, {"e.cue", 1}, {"a/d.cue", 0}, {"a/b.cue", 1}} {
		added, err := files.Add(tc.name, &fstest.MapFile{Data: []byte(tc.name), Mode: 0o444})
		if err != nil || added != tc.added {
			t.Errorf("%s: %d files and folders are new, %v; want %d", tc.name, added, err, tc.added)
		}
	}
	if err := fstest.TestFS(files, "a", "a/b", "a/b/c.cue", "a/d.cue", "a-b", "e.cue", "a/b.cue"); err != nil {
		t.Error(err)
	}
	if got, err := fs.ReadFile(files, "a/d.cue"); string(got) != "a/d.cue" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if err := fstest.TestFS(FS(nil)); err != nil {
		t.Errorf("of nothing: %v", err)
	}
}

func TestALinkIsListedAndNotFollowed(t *testing.T) {
	files := FS{}
	_, err := files.Add("a/link.cue", Link("../b"))
	entries, listed := fs.ReadDir(files, "a")
	if err := errors.Join(err, listed); err != nil || len(entries) != 1 || entries[0].Type() != fs.ModeSymlink {
		t.Errorf("listed are %v, %v", entries, err)
	}
	if info, err := fs.Lstat(files, "a/link.cue"); err != nil || info.Mode() != fs.ModeSymlink {
		t.Errorf("described is %v, %v", info, err)
	}
	if target, err := fs.ReadLink(files, "a/link.cue"); err != nil || target != "../b" {
		t.Errorf("it leads to %q, %v", target, err)
	}
	if _, err := fs.Stat(files, "a/link.cue"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is there: %v", err)
	}
}

func TestNamesThatCantBe(t *testing.T) {
	for _, tc := range []struct{ first, second string }{{"a", "a/b"}, {"a/b", "a"}, {"a/b/c", "a"}, {"a", "a/b/c"}, {"b", "."}, {"b", "/a"}, {"b", "../a"}, {"b", ""}} {
		files := FS{}
		_, err := files.Add(tc.first, &fstest.MapFile{})
		_, refused := files.Add(tc.second, &fstest.MapFile{})
		if err != nil || refused == nil {
			t.Errorf("%s and then %s: %v, %v", tc.first, tc.second, err, refused)
		}
	}
}

// If reading a folder searched all files, this would take minutes.
func TestAFolderTakesItsOwnTime(t *testing.T) {
	const folders = 50_000
	files := FS{}
	for i := range folders {
		if _, err := files.Add(fmt.Sprintf("d%d/x", i), &fstest.MapFile{}); err != nil {
			t.Fatal(err)
		}
	}
	start, seen := time.Now(), 0 //nolint:forbidigo // it measures
	err := fs.WalkDir(files, ".", func(name string, _ fs.DirEntry, err error) error {
		if _, absent := fs.Stat(files, name+"/cue.mod/module.cue"); !errors.Is(absent, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, absent)
		}
		seen++
		return err
	})
	if took := time.Since(start); err != nil || seen != 1+2*folders || took > 2*time.Minute { //nolint:forbidigo // it measures
		t.Errorf("saw %d files and folders in %s, %v", seen, took, err)
	}
}
