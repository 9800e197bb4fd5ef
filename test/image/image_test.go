// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package image has the tests of the container image run with all others: they stand beside what makes it, in a module
// of its own, which has the libraries for images and bills of materials.
package image

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/corral-dev/corral/test/sources"
)

const root = "../.."

func TestImage(t *testing.T) {
	sources.Open(t, root, "Dockerfile", "hack/image")
	c := exec.CommandContext(t.Context(), "go", "-C", filepath.Join(root, "hack", "image"), "test", "-count=1", "./...")
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("the image's tests: %v\n%s", err, out)
	}
}
