// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"

	"github.com/corral-dev/corral/internal/wording"
)

// maxNamed is how many pools are named that a revision removes.
const maxNamed = 10

// RemovesTooMany says why a revision with so many pools removes more of those held than a source does without being asked twice: so
// many that none is left, or more than half. One of two may go; one of one, or two of three, may not. It is empty when they may go. A
// source obeys it, and a review tells of it beforehand.
func RemovesTooMany(held int, removed []string, pools int) string {
	switch {
	case len(removed) == 0:
		return ""
	case pools == 0 && len(removed) == 1:
		return fmt.Sprintf("It would remove the only pool, %s", removed[0])
	case pools == 0:
		return fmt.Sprintf("It would remove all %d pools: %s", len(removed), wording.List(removed, maxNamed))
	case 2*len(removed) > held:
		return fmt.Sprintf("It would remove %d of %d pools, more than half: %s", len(removed), held, wording.List(removed, maxNamed))
	}
	return ""
}
