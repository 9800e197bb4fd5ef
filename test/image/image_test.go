// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package image has the tests of the container image run with all others: they stand beside what makes it, in a module
// of its own, which has the libraries for images and bills of materials.
package image

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

const root = "../.."

func TestImage(t *testing.T) {
	look(t)
	c := exec.CommandContext(t.Context(), "go", "-C", filepath.Join(root, "hack", "image"), "test", "-count=1", "./...")
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("the image's tests: %v\n%s", err, out)
	}
}

// look opens all that the image is made of, so that the go command knows what a cached result of this test depends on.
func look(t *testing.T) {
	t.Helper()
	for _, name := range []string{"Dockerfile", "go.mod", "go.sum"} {
		if _, err := os.Stat(filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, folder := range []string{"apis", "cmd/corral", "controllers", "hack/image", "internal", "policies", "schema"} {
		// Opening a folder is enough: the sizes and times of its files count.
		err := filepath.WalkDir(filepath.Join(root, folder), func(_ string, _ fs.DirEntry, err error) error { return err })
		if err != nil {
			t.Fatal(err)
		}
	}
}
