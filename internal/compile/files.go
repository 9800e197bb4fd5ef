// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"bytes"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
)

// Files is a read-only tree in memory: contents by path, with slashes, relative to the root.
// An empty folder is a name that ends in a slash.
type Files map[string][]byte

// Open implements fs.FS.
func (f Files) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	if data, ok := f[name]; ok {
		return &openFile{info: fileInfo{name: path.Base(name), size: int64(len(data))}, Reader: bytes.NewReader(data)}, nil
	}
	entries, ok := f.list(name)
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return &openFolder{info: fileInfo{name: path.Base(name), folder: true}, entries: entries}, nil
}

// list returns the entries of a folder, by name, and whether there is such a folder.
func (f Files) list(folder string) ([]fs.DirEntry, bool) {
	prefix := folder + "/"
	if folder == "." {
		prefix = ""
	}
	found, exists := map[string]fileInfo{}, folder == "."
	for name, data := range f {
		rest, ok := strings.CutPrefix(name, prefix)
		if !ok {
			continue
		}
		exists = true
		base, _, deeper := strings.Cut(rest, "/")
		if base == "" {
			continue
		}
		if deeper {
			found[base] = fileInfo{name: base, folder: true}
		} else {
			found[base] = fileInfo{name: base, size: int64(len(data))}
		}
	}
	entries := make([]fs.DirEntry, 0, len(found))
	for _, name := range slices.Sorted(maps.Keys(found)) {
		entries = append(entries, fs.FileInfoToDirEntry(found[name]))
	}
	return entries, exists
}

// fileInfo describes a file or folder of Files.
type fileInfo struct {
	name   string
	size   int64
	folder bool
}

func (i fileInfo) Name() string       { return i.name }
func (i fileInfo) Size() int64        { return i.size }
func (i fileInfo) ModTime() time.Time { return time.Time{} }
func (i fileInfo) IsDir() bool        { return i.folder }
func (i fileInfo) Sys() any           { return nil }
func (i fileInfo) Mode() fs.FileMode {
	if i.folder {
		return fs.ModeDir | 0o555
	}
	return 0o444
}

type openFile struct {
	info fileInfo
	*bytes.Reader
}

func (f *openFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *openFile) Close() error               { return nil }

type openFolder struct {
	info    fileInfo
	entries []fs.DirEntry
}

func (f *openFolder) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *openFolder) Close() error               { return nil }
func (f *openFolder) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: f.info.name, Err: fs.ErrInvalid}
}

// ReadDir implements fs.ReadDirFile.
func (f *openFolder) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 {
		rest := f.entries
		f.entries = nil
		return rest, nil
	}
	if len(f.entries) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(f.entries))
	head := f.entries[:n]
	f.entries = f.entries[n:]
	return head, nil
}
