// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package memfs holds files in memory as an fs.FS. To open a file or a folder takes the time that its own folder does, however many
// others there are: who wrote the files chose how many. It is a package because two adapters fill what the compiler and the command
// line read, and none of them imports another.
package memfs

import (
	"fmt"
	"io/fs"
	"path"
	"testing/fstest"
)

// FS holds what is in each folder, by the folder's name. Its zero value is empty, and can't be added to.
type FS map[string]fstest.MapFS // an fs.FS over a map, which needs no test to be useful; it looks at all of it to find a folder

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

// ReadLink says where a link leads (fs.ReadLinkFS).
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

// Link returns a link to target that nobody follows: it is listed as one, and to open it says that it is not there (fs.ErrNotExist). So
// whoever would read it notices that it can't.
func Link(target string) *fstest.MapFile {
	return &fstest.MapFile{Mode: fs.ModeSymlink, Data: []byte("/"), Sys: target} // MapFS would follow what Data names
}

// Submodule stands for a folder of another repository that nobody fetches: it is listed, and is neither a file nor a folder.
var Submodule = &fstest.MapFile{Mode: fs.ModeIrregular}

// dir stands for each folder in the one above it.
var dir = &fstest.MapFile{Mode: fs.ModeDir | 0o555}

// Add adds a file in place of one of the same name, and the folders above it. It returns how many files and folders are new. An error
// says that the name is none (fs.ValidPath), or that something is both a file and a folder. Not to be called while f is read.
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
			break // and so are the folders above it
		}
		added++
	}
	return added, nil
}
