// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package memfs holds files in memory as an fs.FS. Opening a file or a folder takes time in proportion to its own
// folder, however many others there are, because their number is not trusted. It is a separate package because two
// adapters write what the compiler and the command line read, and none of these may import another.
package memfs

import (
	"fmt"
	"io/fs"
	"path"
	"testing/fstest"
)

// FS maps each folder's name to its content. The zero value is empty and read-only.
type FS map[string]fstest.MapFS // an fs.FS over a map, useful outside of tests as well; it searches all entries to find a folder

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

// Link returns a link to target that is not followed. It is listed as a link, and opening it returns fs.ErrNotExist, so
// that a reader gets an error.
func Link(target string) *fstest.MapFile {
	return &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte("/"), Sys: target} // MapFS would follow the path in Data
}

// Submodule stands for a folder of another repository that is not fetched. It is listed, and is neither a file nor a
// folder.
var Submodule = &fstest.MapFile{Mode: fs.ModeIrregular}

// dir stands for each folder in the one above it.
var dir = &fstest.MapFile{Mode: fs.ModeDir | 0o555}

// Add adds or replaces a file, and adds the folders above it. It returns how many files and folders are new. It fails
// if the name is invalid (fs.ValidPath), or if a path is both a file and a folder. It must not be called while f is
// read.
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
			break // and so do the folders above it
		}
		added++
	}
	return added, nil
}
