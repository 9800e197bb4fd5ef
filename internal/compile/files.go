// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"io/fs"
	"strings"
	"testing/fstest"
)

// Files is a read-only tree in memory. It maps paths, with slashes and relative to the root, to contents. A name with a
// trailing slash is an empty folder.
type Files map[string][]byte

// Open implements fs.FS.
func (f Files) Open(name string) (fs.File, error) {
	opened := fstest.MapFS{} // the opened file, or the content of the opened folder
	if data, ok := f[name]; ok {
		opened[name] = &fstest.MapFile{Data: data, Mode: 0o444}
		return opened.Open(name)
	}
	for file, data := range f {
		switch folder, isFolder := strings.CutSuffix(file, "/"); {
		case name != "." && !strings.HasPrefix(file, name+"/"):
		case isFolder:
			opened[folder] = &fstest.MapFile{Mode: fs.ModeDir | 0o555}
		default:
			opened[file] = &fstest.MapFile{Data: data, Mode: 0o444}
		}
	}
	return opened.Open(name)
}
