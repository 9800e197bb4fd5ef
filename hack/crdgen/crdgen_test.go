// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package crdgen

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The committed CRDs have the maxima already, so adding them again changes nothing.
func TestTheCRDsHaveTheirMaxima(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("..", "..", folder, "corral.dev_*.yaml"))
	if err != nil || len(files) != 7 {
		t.Fatalf("%d CRDs, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		again, err := bounded(text)
		if diff := cmp.Diff(string(text), string(again)); diff != "" || err != nil {
			t.Errorf("%s is stale, `make generate` makes it again: %v\n%s", file, err, diff)
		}
	}
}
