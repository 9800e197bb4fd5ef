// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package sources tells the go command what a test depends on beside what it imports.
package sources

import (
	"io/fs"
	"path/filepath"
	"testing"
)

// Open opens all that the corral command is built from, and more files or folders below the repository's root. The go command uses a
// result again as long as what the test imports and opens is the same: of a folder the names, sizes and times of its files. What is
// edited while the test runs counts as tested.
func Open(t *testing.T, root string, more ...string) {
	t.Helper()
	for _, name := range append(more, "go.mod", "go.sum", "apis", "cmd/corral", "controllers", "internal", "policies", "schema") {
		err := filepath.WalkDir(filepath.Join(root, name), func(_ string, _ fs.DirEntry, err error) error { return err })
		if err != nil {
			t.Fatal(err)
		}
	}
}
