// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
)

// BenchmarkDecisions is the scenario policy-1000 to profile.
func BenchmarkDecisions(b *testing.B) {
	f, err := newFleet(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.Run("scaling", func(b *testing.B) {
		for i := range b.N {
			f.limits(b.Context(), f.pools[i%len(f.pools)], 5)
		}
	})
	b.Run("template", func(b *testing.B) {
		for i := range b.N {
			f.verdict(b.Context(), f.pools[i%len(f.pools)])
		}
	})
}

func TestTheJudgedPodIsOfAboutFourKilobytes(t *testing.T) {
	f, err := newFleet(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := len(f.pods[f.pools[0]]); n < 3500 || n > 4500 {
		t.Errorf("it has %d bytes", n)
	}
}
