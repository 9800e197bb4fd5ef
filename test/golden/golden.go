// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package golden compares test results with files that reviewers read.
package golden

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Updating reports whether golden files are to be rewritten, which UPDATE_GOLDEN=1 requests.
func Updating() bool { return os.Getenv("UPDATE_GOLDEN") != "" }

// Compare fails a test if its result differs from the file. If golden files are being updated, it writes the file
// instead.
func Compare(t testing.TB, file, got string) {
	t.Helper()
	if Updating() {
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; UPDATE_GOLDEN=1 accepts it):\n%s", filepath.Base(file), diff)
	}
}
