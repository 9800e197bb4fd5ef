// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"path/filepath"
	"testing"

	"github.com/corral-dev/corral/test/golden"
)

func TestCommonMistakesAreRefusedInWordsThatHelp(t *testing.T) {
	folders, err := filepath.Glob(filepath.Join(top, "testdata", "refused", "*"))
	if err != nil || len(folders) < 10 {
		t.Fatalf("got %d scenarios, %v", len(folders), err)
	}
	for _, folder := range folders {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			absolute, err := filepath.Abs(folder)
			if err != nil {
				t.Fatal(err)
			}
			got := corral(t, absolute, "vet")
			if got.code != exitError {
				t.Errorf("vet exited with %d", got.code)
			}
			golden.Compare(t, filepath.Join(absolute, "refused.txt"), got.stderr)
		})
	}
}
