// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
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
			if got.code != ExitError {
				t.Errorf("vet ended with %d", got.code)
			}
			golden := filepath.Join(absolute, "refused.txt")
			if os.Getenv("UPDATE_GOLDEN") != "" {
				if err := os.WriteFile(golden, []byte(got.stderr), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.stderr); diff != "" {
				t.Errorf("UPDATE_GOLDEN=1 accepts this:\n%s", diff)
			}
		})
	}
}
