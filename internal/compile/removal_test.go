// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"
	"testing"
)

func TestRemovesTooMany(t *testing.T) {
	cases := map[string]struct {
		held, removed, pools int
		want                 string
	}{
		"nothing held":               {0, 0, 3, ""},
		"nothing removed":            {3, 0, 3, ""},
		"none left, none held":       {0, 0, 0, ""},
		"the only one":               {1, 1, 0, "It would remove the only pool, p0"},
		"the only one, renamed":      {1, 1, 1, "It would remove 1 of 1 pools, more than half: p0"},
		"one of two":                 {2, 1, 1, ""},
		"both of two":                {2, 2, 0, "It would remove all 2 pools: p0, p1"},
		"one of three":               {3, 1, 2, ""},
		"two of three":               {3, 2, 1, "It would remove 2 of 3 pools, more than half: p0, p1"},
		"half of many":               {100, 50, 50, ""},
		"more than half, and as new": {4, 3, 9, "It would remove 3 of 4 pools, more than half: p0, p1, p2"},
		"many": {12, 12, 0,
			"It would remove all 12 pools: p0, p1, p2, p3, p4, p5, p6, p7, p8, p9, and 2 more"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var removed []string
			for i := range tc.removed {
				removed = append(removed, fmt.Sprintf("p%d", i))
			}
			if got := RemovesTooMany(tc.held, removed, tc.pools); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
