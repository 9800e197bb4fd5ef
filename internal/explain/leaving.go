// SPDX-FileCopyrightText: The Corral Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"
	"strings"
	"time"

	"github.com/corral-dev/corral/apis/v1alpha1"
	"github.com/corral-dev/corral/internal/catalog"
	"github.com/corral-dev/corral/internal/wording"
)

// left is what a pool leaves that was deleted.
type left struct {
	since           time.Time
	working, ending int
}

// checkLeaving finds pools that were deleted, and whose runners are there.
func checkLeaving(v view) symptoms {
	if slices.ContainsFunc(v.Unseen, func(u Unseen) bool { return strings.HasPrefix(u.What, poolsRead) }) {
		return nil // who can't see the pools can't say which are gone
	}
	pools := map[object]left{}
	for i := range v.Runners {
		r := &v.Runners[i]
		if !v.isLeft(r) {
			continue
		}
		of := object{poolKind, r.Namespace, r.Spec.PoolRef.Name}
		l := pools[of]
		if l.since.IsZero() || r.DeletionTimestamp.Time.Before(l.since) {
			l.since = r.DeletionTimestamp.Time
		}
		if r.Status.State == v1alpha1.RunnerBusy {
			l.working++
		} else {
			l.ending++
		}
		pools[of] = l
	}
	var all symptoms
	for of, l := range pools {
		text := wording.Leaving(l.since, l.working, l.ending)
		s := found(of, catalog.RunnersLeaving.With(text))
		s.key, s.rank.what, s.since = s.key+"|"+of.String(), text, l.since
		all = append(all, s)
	}
	return all
}
