// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package sources declares to the go command which files a test depends on in addition to its imports.
package sources

import (
	"io/fs"
	"path/filepath"
	"testing"
)

// Open opens all sources of the corral command, and additional files or folders below the repository's root. The
// go command reuses a cached test result while the test's imports and the files that it opened are unchanged. For
// a folder, it compares the names, sizes and modification times of its files. An edit while the test runs counts
// as tested.
func Open(t *testing.T, root string, more ...string) {
	t.Helper()
	for _, name := range append(more, "go.mod", "go.sum", "apis", "cmd/corral", "controllers", "internal", "policies", "schema") {
		err := filepath.WalkDir(filepath.Join(root, name), func(_ string, _ fs.DirEntry, err error) error { return err })
		if err != nil {
			t.Fatal(err)
		}
	}
}
