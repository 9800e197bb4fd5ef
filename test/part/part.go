// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

// Package part has tests try a part of many seeded cases. CORRAL_PART=1/3 stands for every third from the second on; without
// it all are tried. In make test the commit's hash picks a third.
package part

import (
	"fmt"
	"iter"
	"os"
	"sync"
)

// Has tells whether a case, counted from 0, is to be tried.
func Has(i int) bool {
	part := chosen()
	return i%part.of == part.first
}

// Of returns those of n cases that are to be tried.
func Of(n int) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for i := range n {
			if Has(i) && !yield(uint64(i)) { //nolint:gosec // it is not below 0
				return
			}
		}
	}
}

// choice is every so many from the first on.
type choice struct{ first, of int }

var chosen = sync.OnceValue(func() choice {
	asked := os.Getenv("CORRAL_PART")
	if asked == "" {
		return choice{0, 1}
	}
	var c choice
	if _, err := fmt.Sscanf(asked, "%d/%d", &c.first, &c.of); err != nil || c.first < 0 || c.first >= c.of {
		panic(fmt.Sprintf("CORRAL_PART=%s: it has the form 1/3, from 0/3 to 2/3", asked))
	}
	return c
})
