// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import "testing"

func TestMutantsApply(t *testing.T) {
	const root = "../.."
	mutants, err := read(root, ".")
	if err != nil || len(mutants) == 0 {
		t.Fatalf("%d mutants, %v", len(mutants), err)
	}
	for _, m := range mutants {
		if _, _, err := m.apply(root); err != nil || m.Breaks == "" || m.New == m.Old {
			t.Errorf("%q: %v", m.Breaks, err)
		}
	}
}
