// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package memfs is a file system (fs.FS) in memory. The time to open a file or a folder depends only on the size of its
// own folder, because untrusted users choose the total number of files. It is a separate package because gitsource and
// fluxsource create such file systems, and the compiler, which reads them, may not import adapters.
package memfs

import (
	"fmt"
	"io/fs"
	"path"
	"testing/fstest"
)

// FS maps the name of each folder to the folder's entries. The zero value is empty and read-only.
type FS map[string]fstest.MapFS // one MapFS per folder, because a MapFS searches all its entries to list a folder

// Open opens a file or a folder (fs.FS).
func (f FS) Open(name string) (fs.File, error) {
	folder, ok := f[name]
	if !ok {
		folder = f[path.Dir(name)]
	}
	return folder.Open(name)
}

// Lstat describes a file, a folder or a link (fs.ReadLinkFS).
func (f FS) Lstat(name string) (fs.FileInfo, error) { return f[path.Dir(name)].Lstat(name) }

// ReadLink returns the target of a link (fs.ReadLinkFS).
func (f FS) ReadLink(name string) (string, error) {
	info, err := f.Lstat(name)
	if err != nil {
		return "", err
	}
	target, ok := info.Sys().(string)
	if !ok {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
	}
	return target, nil
}

// Link returns a symbolic link to target that is not followed. A listing of its folder shows it as a link, but opening
// it returns fs.ErrNotExist, so that a reader gets an error.
func Link(target string) *fstest.MapFile {
	return &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte("/"), Sys: target} // MapFS would follow a link to a valid path in Data
}

// Submodule is the entry for a Git submodule, whose files are not fetched. A listing of its folder shows it, but it is
// neither a file nor a folder.
var Submodule = &fstest.MapFile{Mode: fs.ModeIrregular}

// dir is the entry of each folder in its parent folder.
var dir = &fstest.MapFile{Mode: fs.ModeDir | 0o555}

// Add adds or replaces a file, and adds its parent folders. It returns the number of files and folders that are new. It
// fails if the name is invalid (fs.ValidPath), or if a path is both a file and a folder. It must not be called while f
// is read.
func (f FS) Add(name string, file *fstest.MapFile) (added int, err error) {
	if name == "." || !fs.ValidPath(name) {
		return 0, fmt.Errorf("%q is not the name of a file", name)
	}
	for ; name != "."; name, file = path.Dir(name), dir {
		folder := path.Dir(name)
		if f[folder] == nil {
			f[folder] = fstest.MapFS{}
		}
		other := f[folder][name]
		if other != nil && other.Mode.IsDir() != file.Mode.IsDir() {
			return added, fmt.Errorf("%s is a file and a folder", name)
		}
		f[folder][name] = file
		if other != nil {
			break // its parent folders exist, too
		}
		added++
	}
	return added, nil
}
