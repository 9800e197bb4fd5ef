// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"fmt"

	"github.com/corral-dev/corral/internal/wording"
)

// maxNamed is the maximum number of removed pools that a message names.
const maxNamed = 10

// RemovesTooMany returns why a revision needs confirmation to prune, or "". held is the number of pools that the source
// holds, and pools the number that the revision declares. A revision needs confirmation if it removes all pools or more
// than half of them: one pool of two may go, but not the only pool or two of three. PoolSources enforce this, and
// reviews report it in advance.
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
